// A Kafka Streams program with exactly_once_v2: Streams BOOTSTRAP_SERVERS TOPOLOGY NAME=VALUE… until SIGTERM.
// See test_streams.py.

import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.CountDownLatch;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;

public final class Streams {
    public static void main(String[] arguments) throws InterruptedException {
        Map<String, String> given = new HashMap<>();
        for (String argument : Arrays.copyOfRange(arguments, 2, arguments.length)) {
            int at = argument.indexOf('=');
            given.put(argument.substring(0, at), argument.substring(at + 1));
        }
        StreamsBuilder builder = new StreamsBuilder();
        switch (arguments[1]) {
            case "words" -> words(builder, given);
            case "join" -> join(builder, given);
            default -> throw new IllegalArgumentException(arguments[1]);
        }
        KafkaStreams streams = new KafkaStreams(builder.build(), config(arguments[0], given));
        streams.setStateListener((now, before) -> System.out.println("{\"state\": \"" + now + "\"}"));
        streams.setUncaughtExceptionHandler(error -> {
            error.printStackTrace();
            System.out.println("{\"failed\": \"" + error.getClass().getName() + "\"}");
            return StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
        });
        CountDownLatch ended = new CountDownLatch(1);
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            // The state listener may hear of the last state after close has returned, when the process is gone.
            System.out.println("{\"closed\": " + streams.close(Duration.ofSeconds(30)) + "}");
            ended.countDown();
        }));
        streams.start();
        ended.await();
    }

    private static Properties config(String servers, Map<String, String> given) {
        Properties config = new Properties();
        config.put(StreamsConfig.BOOTSTRAP_SERVERS_CONFIG, servers);
        config.put(StreamsConfig.APPLICATION_ID_CONFIG, given.get("application"));
        config.put(StreamsConfig.STATE_DIR_CONFIG, given.get("state"));
        config.put(StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2);
        config.put(StreamsConfig.NUM_STREAM_THREADS_CONFIG, given.getOrDefault("threads", "1"));
        config.put(StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "100");
        config.put(StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0");  // every change is seen
        config.put(StreamsConfig.DEFAULT_KEY_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        config.put(StreamsConfig.DEFAULT_VALUE_SERDE_CLASS_CONFIG, Serdes.StringSerde.class);
        if (given.containsKey("protocol")) {
            config.put(StreamsConfig.GROUP_PROTOCOL_CONFIG, given.get("protocol"));
        } else {
            config.put("main.consumer.session.timeout.ms", "6000");
            config.put("main.consumer.heartbeat.interval.ms", "500");
        }
        config.put("main.consumer.max.poll.records", "50");  // so that a kill comes in the middle
        config.put("auto.offset.reset", "earliest");
        if (given.containsKey("instance")) {
            config.put("group.instance.id", given.get("instance"));
        }
        return config;
    }

    private static void words(StreamsBuilder builder, Map<String, String> given) {
        builder.<String, String>stream(given.get("from"))
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with(Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(given.get("to"));
    }

    private static void join(StreamsBuilder builder, Map<String, String> given) {
        Duration window = Duration.ofMillis(Long.parseLong(given.get("window")));
        KStream<String, String> left = builder.stream(given.get("left"));
        KStream<String, String> right = builder.stream(given.get("right"));
        left.join(right, (one, other) -> one + " " + other, JoinWindows.ofTimeDifferenceAndGrace(window, Duration.ofDays(1)))
            .to(given.get("to"));
    }
}
