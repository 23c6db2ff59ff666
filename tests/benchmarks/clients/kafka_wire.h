/* What the benchmark's clients share: Kafka's encoding by hand, CRC-32C, sockets, time, percentiles.
 *
 * Only what a benchmark sends: one topic, one partition, flexible versions. Whatever is not as expected ends the
 * program with a message, so that a figure never counts answers that were errors.
 */
#ifndef KAFKA_WIRE_H
#define KAFKA_WIRE_H

#define _GNU_SOURCE
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <arpa/inet.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define CLIENT_ID "benchmark"
#define BATCH_HEADER_BYTES 61
#define BATCH_CRC_AT 17     /* CRC-32C over all that follows it */
#define BATCH_COVERED_AT 21 /* attributes: where the CRC begins to count */
#define BATCH_SEQUENCE_AT 53

enum { API_PRODUCE = 0, API_FETCH = 1, API_INIT_PRODUCER_ID = 22 };

static inline __attribute__((noreturn, format(printf, 1, 2))) void die(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static inline int64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

static inline int64_t wall_clock_ms(void) {
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static inline double own_cpu_seconds(void) {
    struct rusage used;
    getrusage(RUSAGE_SELF, &used);
    return used.ru_utime.tv_sec + used.ru_stime.tv_sec + (used.ru_utime.tv_usec + used.ru_stime.tv_usec) / 1e6;
}

/* ---- bytes ---- */

static inline uint8_t *put8(uint8_t *at, uint8_t v) { *at = v; return at + 1; }
static inline uint8_t *put16(uint8_t *at, uint16_t v) { v = htobe16(v); memcpy(at, &v, 2); return at + 2; }
static inline uint8_t *put32(uint8_t *at, uint32_t v) { v = htobe32(v); memcpy(at, &v, 4); return at + 4; }
static inline uint8_t *put64(uint8_t *at, uint64_t v) { v = htobe64(v); memcpy(at, &v, 8); return at + 8; }
static inline uint16_t get16(const uint8_t *at) { uint16_t v; memcpy(&v, at, 2); return be16toh(v); }
static inline uint32_t get32(const uint8_t *at) { uint32_t v; memcpy(&v, at, 4); return be32toh(v); }
static inline uint64_t get64(const uint8_t *at) { uint64_t v; memcpy(&v, at, 8); return be64toh(v); }

static inline uint8_t *put_bytes(uint8_t *at, const void *bytes, size_t length) {
    memcpy(at, bytes, length);
    return at + length;
}

static inline uint8_t *put_uvarint(uint8_t *at, uint64_t v) {
    for (; v >= 0x80; v >>= 7) *at++ = (uint8_t)(v | 0x80);
    *at++ = (uint8_t)v;
    return at;
}

static inline uint8_t *put_varint(uint8_t *at, int64_t v) { return put_uvarint(at, ((uint64_t)v << 1) ^ (uint64_t)(v >> 63)); }

/* ---- CRC-32C ---- */

#if defined(__x86_64__)
#include <nmmintrin.h>
__attribute__((target("sse4.2"))) static inline uint32_t crc32c(const uint8_t *at, size_t length) {
    uint64_t crc = 0xffffffff;
    for (; length >= 8; length -= 8, at += 8) {
        uint64_t word;
        memcpy(&word, at, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    for (; length; length--) crc = _mm_crc32_u8((uint32_t)crc, *at++);
    return ~(uint32_t)crc;
}
#else
static inline uint32_t crc32c(const uint8_t *at, size_t length) {
    static uint32_t table[256];
    if (!table[1]) {
        for (uint32_t i = 0; i < 256; i++) {
            uint32_t v = i;
            for (int bit = 0; bit < 8; bit++) v = (v >> 1) ^ (0x82f63b78 & -(v & 1));
            table[i] = v;
        }
    }
    uint32_t crc = 0xffffffff;
    for (; length; length--) crc = (crc >> 8) ^ table[(crc ^ *at++) & 0xff];
    return ~crc;
}
#endif

/* ---- what is sent ---- */

struct topic {
    const char *name;
    uint8_t id[16];
    int has_id;
    int32_t partition;
};

static inline void parse_topic_id(struct topic *topic, const char *hex) {
    if (strlen(hex) != 32) die("--topic-id takes 32 hex digits");
    for (int i = 0; i < 16; i++) {
        unsigned byte;
        if (sscanf(hex + 2 * i, "%2x", &byte) != 1) die("--topic-id takes hex digits");
        topic->id[i] = (uint8_t)byte;
    }
    topic->has_id = 1;
}

/* Topics go by name below version 13 of Produce and Fetch, by id from there on (KIP-516). */
static inline uint8_t *put_topic(uint8_t *at, const struct topic *topic, int version) {
    if (version >= 13) {
        if (!topic->has_id) die("from version 13 on a --topic-id is needed");
        return put_bytes(at, topic->id, 16);
    }
    size_t length = strlen(topic->name);
    return put_bytes(put_uvarint(at, length + 1), topic->name, length);
}

static inline size_t topic_bytes(const struct topic *topic, int version) {
    return version >= 13 ? 16 : 1 + strlen(topic->name);
}

/* Size (filled in by end_frame) and request header v2. */
static inline uint8_t *begin_frame(uint8_t *frame, int api, int version, int32_t correlation_id) {
    uint8_t *at = put32(frame, 0);
    at = put16(at, (uint16_t)api);
    at = put16(at, (uint16_t)version);
    at = put32(at, (uint32_t)correlation_id);
    at = put16(at, strlen(CLIENT_ID));
    at = put_bytes(at, CLIENT_ID, strlen(CLIENT_ID));
    return put8(at, 0);
}

static inline size_t end_frame(uint8_t *frame, uint8_t *end) {
    put32(frame, (uint32_t)(end - frame - 4));
    return (size_t)(end - frame);
}

#define CORRELATION_ID_AT 8

static inline uint8_t *put_batch(uint8_t *at, int records, int value_bytes, int64_t producer_id, int16_t producer_epoch) {
    uint8_t *batch = at;
    int64_t timestamp = wall_clock_ms();
    at = put64(at, 0);                                  /* base offset: the broker's to say */
    at = put32(at, 0);                                  /* length, below */
    at = put32(at, (uint32_t)-1);                       /* partition leader epoch */
    at = put8(at, 2);                                   /* magic */
    at = put32(at, 0);                                  /* crc, below */
    at = put16(at, 0);                                  /* attributes */
    at = put32(at, (uint32_t)records - 1);              /* last offset delta */
    at = put64(put64(at, (uint64_t)timestamp), (uint64_t)timestamp);
    at = put64(at, (uint64_t)producer_id);
    at = put16(at, (uint16_t)producer_epoch);
    at = put32(at, producer_id < 0 ? (uint32_t)-1 : 0); /* base sequence */
    at = put32(at, (uint32_t)records);
    for (int i = 0; i < records; i++) {
        uint8_t record[64], *end = record;
        end = put8(end, 0);           /* attributes */
        end = put_varint(end, 0);     /* timestamp delta */
        end = put_varint(end, i);     /* offset delta */
        end = put_varint(end, -1);    /* no key */
        end = put_varint(end, value_bytes);
        at = put_varint(at, (end - record) + value_bytes + 1);
        at = put_bytes(at, record, (size_t)(end - record));
        for (int b = 0; b < value_bytes; b++) *at++ = (uint8_t)('a' + (i * 7 + b * 13) % 26);
        at = put8(at, 0);             /* no headers */
    }
    put32(batch + 8, (uint32_t)(at - batch - 12));
    put32(batch + BATCH_CRC_AT, crc32c(batch + BATCH_COVERED_AT, (size_t)(at - batch - BATCH_COVERED_AT)));
    return at;
}

static inline size_t batch_bound(int records, int value_bytes) { return BATCH_HEADER_BYTES + (size_t)records * (value_bytes + 32); }

#define MAX_BATCHES 126 /* counts that fit into one byte */

/* A Produce request of the same batch for `batches` partitions (versions 9 to 13). `batch_at` tells where the first lies. */
static inline size_t put_produce(uint8_t *frame, int version, int acks, const struct topic *topic, const uint8_t *batch,
                                 size_t batch_bytes, int batches, size_t *batch_at) {
    uint8_t *at = begin_frame(frame, API_PRODUCE, version, 0);
    at = put_uvarint(at, 0);          /* no transactional id */
    at = put16(at, (uint16_t)acks);
    at = put32(at, 30000);            /* timeout_ms */
    at = put_uvarint(at, 2);
    at = put_topic(at, topic, version);
    at = put_uvarint(at, (uint64_t)batches + 1);
    for (int i = 0; i < batches; i++) {
        at = put32(at, (uint32_t)(topic->partition + i));
        at = put_uvarint(at, batch_bytes + 1);
        if (i == 0) *batch_at = (size_t)(at - frame);
        at = put8(put_bytes(at, batch, batch_bytes), 0); /* tags of the partition */
    }
    at = put8(put8(at, 0), 0); /* tags of topic and request */
    return end_frame(frame, at);
}

/* Index, error code, base offset, append time, log start, no record errors, no message, no tags. */
#define PRODUCED_PARTITION_BYTES (4 + 2 + 8 + 8 + 8 + 1 + 1 + 1)

/* Where the first error code stands in the answer to put_produce, its size field included. */
static inline size_t produce_error_at(const struct topic *topic, int version) {
    return 4 + 4 + 1 + 1 + topic_bytes(topic, version) + 1 + 4;
}

/* A Fetch request for one partition, without a session (versions 12 to 18), that waits at most 500 ms for one byte. */
static inline size_t put_fetch(uint8_t *frame, int version, const struct topic *topic, int32_t correlation_id,
                               int64_t offset, int max_bytes, int partition_max_bytes) {
    uint8_t *at = begin_frame(frame, API_FETCH, version, correlation_id);
    if (version < 15) at = put32(at, (uint32_t)-1); /* replica_id: a consumer */
    at = put32(put32(at, 500), 1);                  /* max_wait_ms, min_bytes */
    at = put32(at, (uint32_t)max_bytes);
    at = put8(at, 0);                               /* read_uncommitted */
    at = put32(put32(at, 0), (uint32_t)-1);         /* no session */
    at = put_topic(put_uvarint(at, 2), topic, version);
    at = put_uvarint(at, 2);
    at = put32(at, (uint32_t)topic->partition);
    at = put32(at, (uint32_t)-1);                   /* current_leader_epoch */
    at = put64(at, (uint64_t)offset);
    at = put32(at, (uint32_t)-1);                   /* last_fetched_epoch */
    at = put64(at, (uint64_t)-1);                   /* log_start_offset: a follower's */
    at = put32(at, (uint32_t)partition_max_bytes);
    at = put8(put8(at, 0), 0);                      /* tags of partition and topic */
    at = put8(put8(at, 1), 1);                      /* no forgotten topics, no rack */
    return end_frame(frame, put8(at, 0));
}

/* ---- sockets ---- */

static inline int connect_to(const char *host, int port) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) die("%s is no IPv4 address", host);
    if ((ntohl(address.sin_addr.s_addr) >> 24) != 127) die("%s is not this machine: load goes to loopback only", host);
    int fd = socket(AF_INET, SOCK_STREAM, 0), on = 1;
    if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof address) != 0)
        die("connecting to %s:%d: %s", host, port, strerror(errno));
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    return fd;
}

static inline void send_all(int fd, const uint8_t *bytes, size_t length) {
    while (length) {
        ssize_t n = send(fd, bytes, length, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("sending: %s", strerror(errno));
        bytes += n, length -= (size_t)n;
    }
}

static inline void receive_all(int fd, uint8_t *bytes, size_t length) {
    while (length) {
        ssize_t n = recv(fd, bytes, length, 0);
        if (n < 0 && errno == EINTR) continue;
        if (n <= 0) die("receiving: %s", n ? strerror(errno) : "the broker closed the connection");
        bytes += n, length -= (size_t)n;
    }
}

/* Wait for one whole answer; returns its length, size field included. */
static inline size_t receive_frame(int fd, uint8_t *frame, size_t capacity) {
    receive_all(fd, frame, 4);
    size_t length = get32(frame);
    if (length + 4 > capacity) die("an answer of %zu bytes is larger than expected", length);
    receive_all(fd, frame + 4, length);
    return length + 4;
}

static inline void init_producer_id(int fd, int64_t *producer_id, int16_t *producer_epoch) {
    uint8_t frame[256], *at = begin_frame(frame, API_INIT_PRODUCER_ID, 4, 1);
    at = put_uvarint(at, 0);            /* no transactional id */
    at = put32(at, (uint32_t)-1);       /* transaction_timeout_ms */
    at = put64(at, (uint64_t)-1);       /* producer_id */
    at = put16(at, (uint16_t)-1);       /* producer_epoch */
    at = put8(at, 0);
    size_t length = end_frame(frame, at);
    for (int tries = 0; tries < 50; tries++) {
        send_all(fd, frame, length);
        receive_frame(fd, frame + 128, 128);
        const uint8_t *answer = frame + 128 + 4 + 4 + 1 + 4; /* size, correlation id, tags, throttle time */
        int error = get16(answer);
        if (error == 0) {
            *producer_id = (int64_t)get64(answer + 2);
            *producer_epoch = (int16_t)get16(answer + 10);
            return;
        }
        if (error != 14 && error != 15) die("InitProducerId: error %d", error);
        usleep(100000); /* the coordinator loads, or is not there yet */
    }
    die("InitProducerId: the coordinator never came");
}

/* ---- what is printed ---- */

static int compare_latency(const void *a, const void *b) {
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return (x > y) - (x < y);
}

/* Prints fields of a JSON object: p50_us, p99_us, p999_us, max_us, mean_us. Sorts in place; latencies in ns. */
static inline void print_latencies(uint32_t *latencies, size_t count) {
    double sum = 0;
    for (size_t i = 0; i < count; i++) sum += latencies[i];
    qsort(latencies, count, sizeof *latencies, compare_latency);
    printf("\"mean_us\": %.1f, \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f, \"max_us\": %.1f", sum / count / 1e3,
           latencies[count / 2] / 1e3, latencies[(size_t)(count * 0.99)] / 1e3, latencies[(size_t)(count * 0.999)] / 1e3,
           latencies[count - 1] / 1e3);
}

static inline uint32_t clamp_ns(int64_t ns) { return ns > UINT32_MAX ? UINT32_MAX : (uint32_t)ns; }

#endif
