/* One record from producer to consumer, one at a time: how long from send until the consumer has it.
 *
 * The consumer's Fetch waits at the broker already (a long poll) when the producer sends; between two records both
 * pause, so that nothing is in the pipe. Prints one line of JSON.
 */
#include "kafka_wire.h"

#include <getopt.h>

#define ANSWER_BYTES (1 << 20)

static const char *host = "127.0.0.1";
static int port = 9092, produce_version = 12, fetch_version = 12, records = 5000, warm_up = 500, record_bytes = 100;
static int pause_us = 300, acks = 1;
static struct topic topic = {.name = "benchmark"};

static void parse_arguments(int argc, char **argv) {
    static const struct option options[] = {
        {"host", 1, 0, 'h'},         {"port", 1, 0, 'p'},    {"topic", 1, 0, 't'},           {"topic-id", 1, 0, 'i'},
        {"records", 1, 0, 'n'},      {"warm-up", 1, 0, 'w'}, {"record-bytes", 1, 0, 'b'},    {"pause-us", 1, 0, 'u'},
        {"acks", 1, 0, 'a'},         {"version", 1, 0, 'v'}, {"fetch-version", 1, 0, 'f'},   {0, 0, 0, 0}};
    for (int option; (option = getopt_long(argc, argv, "", options, 0)) != -1;) {
        switch (option) {
            case 'h': host = optarg; break;
            case 'p': port = atoi(optarg); break;
            case 't': topic.name = optarg; break;
            case 'i': parse_topic_id(&topic, optarg); break;
            case 'n': records = atoi(optarg); break;
            case 'w': warm_up = atoi(optarg); break;
            case 'b': record_bytes = atoi(optarg); break;
            case 'u': pause_us = atoi(optarg); break;
            case 'a': acks = atoi(optarg); break;
            case 'v': produce_version = atoi(optarg); break;
            case 'f': fetch_version = atoi(optarg); break;
            default: exit(2);
        }
    }
    if (records < 1 || warm_up < 0 || acks == 0 || produce_version < 9 || fetch_version < 12)
        die("arguments out of range");
}

/* Wait for the acknowledgement; returns the offset. */
static int64_t finish_produce(int fd, uint8_t *answer, int32_t correlation_id) {
    receive_frame(fd, answer, ANSWER_BYTES);
    size_t at = produce_error_at(&topic, produce_version);
    if ((int32_t)get32(answer + 4) != correlation_id || get16(answer + at))
        die("Produce: error %d", (int16_t)get16(answer + at));
    return (int64_t)get64(answer + at + 2);
}

int main(int argc, char **argv) {
    parse_arguments(argc, argv);
    int producer = connect_to(host, port), consumer = connect_to(host, port);
    uint8_t *batch = malloc(batch_bound(1, record_bytes)), *produce = malloc(batch_bound(1, record_bytes) + 512);
    uint8_t fetch[1024], *answer = malloc(ANSWER_BYTES);
    uint32_t *latencies = malloc((size_t)records * sizeof *latencies);
    size_t batch_at, batch_bytes = (size_t)(put_batch(batch, 1, record_bytes, -1, -1) - batch);
    size_t produce_bytes = put_produce(produce, produce_version, acks, &topic, batch, batch_bytes, 1, &batch_at);
    size_t error_at = 4 + 4 + 1 + 4 + 2 + 4 + 1 + topic_bytes(&topic, fetch_version) + 1 + 4;

    /* The first record tells where the log ends. */
    send_all(producer, produce, produce_bytes);
    int64_t next_offset = finish_produce(producer, answer, 0) + 1;
    double cpu_before = own_cpu_seconds();
    for (int i = -warm_up; i < records; i++) {
        size_t fetch_bytes = put_fetch(fetch, fetch_version, &topic, i, next_offset, 1 << 20, 1 << 20);
        send_all(consumer, fetch, fetch_bytes);
        usleep((useconds_t)pause_us); /* time for the broker to park it */
        put32(produce + CORRELATION_ID_AT, (uint32_t)i);
        int64_t sent = now_ns();
        send_all(producer, produce, produce_bytes);
        size_t length;
        for (;;) { /* a fetch that waited in vain is sent again */
            length = receive_frame(consumer, answer, ANSWER_BYTES);
            if ((int32_t)get32(answer + 4) != i || get16(answer + error_at))
                die("Fetch: error %d", (int16_t)get16(answer + error_at));
            if (length > error_at + 2 + 24 + 1 + 4 + BATCH_HEADER_BYTES) break;
            send_all(consumer, fetch, fetch_bytes);
        }
        int64_t got = now_ns();
        if (i >= 0) latencies[i] = clamp_ns(got - sent);
        int64_t offset = finish_produce(producer, answer, i);
        if (offset != next_offset) die("offset %lld instead of %lld", (long long)offset, (long long)next_offset);
        next_offset = offset + 1;
    }
    printf("{\"records\": %d, \"client_cpu_s\": %.3f, ", records, own_cpu_seconds() - cpu_before);
    print_latencies(latencies, (size_t)records);
    printf("}\n");
    return 0;
}
