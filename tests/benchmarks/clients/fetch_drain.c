/* Fetch one partition as fast as a broker sends: one connection, the next request when an answer is through.
 *
 * Of each batch only the header is received; the rest is thrown away inside the kernel (MSG_TRUNC), so that the client
 * is not the limit. Offsets are checked to have no gap between batches. From the end it begins again at the start,
 * until --bytes have come. Prints one line of JSON.
 */
#include "kafka_wire.h"

#include <getopt.h>

#define CONFIRM_BYTES 27 /* base offset, length, leader epoch, magic, crc, attributes, last offset delta */

static const char *host = "127.0.0.1";
static int port = 9092, version = 12, partition_max_bytes = 1 << 20, max_bytes = 50 << 20, max_seconds = 120;
static int64_t wanted_bytes = 1 << 30;
static struct topic topic = {.name = "benchmark"};
static int64_t bytes, batches, records, passes;

static void discard(int fd, size_t length) {
    while (length) {
        ssize_t n = recv(fd, NULL, length, MSG_TRUNC);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("receiving: %s", n ? strerror(errno) : "the broker closed the connection");
        length -= (size_t)n;
    }
}

/* Receives an answer; returns the offset to go on from, and the end of the log. */
static int64_t drain_answer(int fd, int32_t correlation_id, int64_t offset, int64_t *high_watermark) {
    uint8_t head[512];
    size_t topic_at = 4 + 4 + 1 + 4 + 2 + 4 + 1, name_bytes = topic_bytes(&topic, version);
    size_t partition_at = topic_at + name_bytes + 1, fixed = partition_at + 4 + 2 + 8 + 8 + 8 + 1 + 4;
    if (fixed > sizeof head) die("the topic's name is too long");
    receive_all(fd, head, fixed);
    size_t left = get32(head) + 4 - fixed;
    if ((int32_t)get32(head + 4) != correlation_id) die("an answer to another request");
    if (get16(head + 13)) die("Fetch: error %d", (int16_t)get16(head + 13));
    int error = get16(head + partition_at + 4);
    if (error) die("Fetch: error %d at offset %lld", (int16_t)error, (long long)offset);
    *high_watermark = (int64_t)get64(head + partition_at + 6);
    if (head[partition_at + 30] > 1) die("aborted transactions were not expected");
    uint64_t records_bytes = 0;
    for (int shift = 0;; shift += 7) {
        uint8_t byte;
        receive_all(fd, &byte, 1);
        left--;
        records_bytes |= (uint64_t)(byte & 0x7f) << shift;
        if (!(byte & 0x80)) break;
    }
    records_bytes = records_bytes ? records_bytes - 1 : 0;
    if (records_bytes > left) die("records of %llu bytes in an answer with %zu", (unsigned long long)records_bytes, left);
    left -= records_bytes;
    while (records_bytes >= CONFIRM_BYTES) {
        uint8_t batch[CONFIRM_BYTES];
        receive_all(fd, batch, CONFIRM_BYTES);
        records_bytes -= CONFIRM_BYTES;
        int64_t base = (int64_t)get64(batch), length = (int64_t)get32(batch + 8) + 12 - CONFIRM_BYTES;
        if ((uint64_t)length > records_bytes) break; /* cut off: fetched again as the first of the next answer */
        int64_t next = base + (int64_t)get32(batch + 23) + 1;
        if (base > offset || next <= offset) die("a batch of %lld to %lld came for offset %lld", (long long)base, (long long)next, (long long)offset);
        records += next - offset;
        offset = next;
        batches++;
        bytes += CONFIRM_BYTES + length; /* whole batches count, a piece that comes twice does not */
        discard(fd, (size_t)length);
        records_bytes -= (uint64_t)length;
    }
    discard(fd, records_bytes + left);
    return offset;
}

static void parse_arguments(int argc, char **argv) {
    static const struct option options[] = {
        {"host", 1, 0, 'h'},    {"port", 1, 0, 'p'},  {"topic", 1, 0, 't'},     {"topic-id", 1, 0, 'i'},
        {"version", 1, 0, 'v'}, {"bytes", 1, 0, 'B'}, {"max-bytes", 1, 0, 'm'}, {"partition-max-bytes", 1, 0, 'P'},
        {"seconds", 1, 0, 's'}, {0, 0, 0, 0}};
    for (int option; (option = getopt_long(argc, argv, "", options, 0)) != -1;) {
        switch (option) {
            case 'h': host = optarg; break;
            case 'p': port = atoi(optarg); break;
            case 't': topic.name = optarg; break;
            case 'i': parse_topic_id(&topic, optarg); break;
            case 'v': version = atoi(optarg); break;
            case 'B': wanted_bytes = atoll(optarg); break;
            case 'm': max_bytes = atoi(optarg); break;
            case 'P': partition_max_bytes = atoi(optarg); break;
            case 's': max_seconds = atoi(optarg); break;
            default: exit(2);
        }
    }
    if (version < 12 || version > 18) die("Fetch versions 12 to 18");
}

int main(int argc, char **argv) {
    parse_arguments(argc, argv);
    int fd = connect_to(host, port);
    uint8_t frame[1024];
    int64_t offset = 0, high_watermark = 0, answers = 0;
    double cpu_before = own_cpu_seconds();
    int64_t began = now_ns(), deadline = began + (int64_t)max_seconds * 1000000000;
    while (bytes < wanted_bytes && now_ns() < deadline) {
        send_all(fd, frame, put_fetch(frame, version, &topic, (int32_t)++answers, offset, max_bytes, partition_max_bytes));
        int64_t next = drain_answer(fd, (int32_t)answers, offset, &high_watermark);
        if (high_watermark == 0) die("the partition is empty");
        if (next >= high_watermark) next = 0, passes++;
        else if (next == offset) die("no progress at offset %lld", (long long)offset);
        offset = next;
    }
    double seconds = (now_ns() - began) / 1e9;
    printf("{\"bytes\": %lld, \"records\": %lld, \"batches\": %lld, \"answers\": %lld, \"passes\": %lld, \"seconds\": %.4f, "
           "\"bytes_per_s\": %.0f, \"client_cpu_s\": %.3f, \"complete\": %s}\n",
           (long long)bytes, (long long)records, (long long)batches, (long long)answers, (long long)passes, seconds,
           bytes / seconds, own_cpu_seconds() - cpu_before, bytes >= wanted_bytes ? "true" : "false");
    return 0;
}
