// A member of a share group that says of each record what its value tells: ShareReader BOOTSTRAP_SERVERS GROUP TOPIC
// [FILE], until it is killed. See test_share_readers.py.
//   accept-…   at once            reject-…    never again
//   once-…     the second time    release-…   never: it is released as often as it comes
//   hold-…     when FILE is there; without FILE at once

import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.serialization.StringDeserializer;

public final class ShareReader {
    public static void main(String[] arguments) throws InterruptedException {
        Properties config = new Properties();
        config.put("bootstrap.servers", arguments[0]);
        config.put("group.id", arguments[1]);
        config.put("share.acknowledgement.mode", "explicit");
        try (var consumer = new KafkaShareConsumer<>(config, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(arguments[2]));
            while (true) {
                var records = consumer.poll(Duration.ofSeconds(1));
                for (ConsumerRecord<String, String> record : records) {
                    int deliveries = record.deliveryCount().map(Short::intValue).orElse(0);
                    System.out.printf("{\"name\": \"record\", \"value\": \"%s\", \"deliveries\": %d}%n",
                        record.value(), deliveries);
                    while (record.value().startsWith("hold-") && arguments.length > 3
                        && !Files.exists(Path.of(arguments[3]))) {
                        Thread.sleep(50);
                    }
                    consumer.acknowledge(record, said(record.value(), deliveries));
                }
                tell(consumer.commitSync());
            }
        }
    }

    private static AcknowledgeType said(String value, int deliveries) {
        return switch (value.substring(0, value.indexOf('-'))) {
            case "reject" -> AcknowledgeType.REJECT;
            case "release" -> AcknowledgeType.RELEASE;
            case "once" -> deliveries == 1 ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
            default -> AcknowledgeType.ACCEPT;
        };
    }

    private static void tell(Map<TopicIdPartition, Optional<KafkaException>> outcome) {
        outcome.values().forEach(error -> System.out.printf("{\"name\": \"committed\", \"error\": \"%s\"}%n",
            error.map(each -> each.getClass().getSimpleName()).orElse("")));
    }
}
