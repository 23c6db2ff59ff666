/* Produce as fast as a broker answers, or at a fixed rate: one thread, N connections, M requests in flight on each.
 *
 * With --batches B a request has one batch for each of the partitions 0 to B - 1, else one for one partition.
 *
 * Every frame is prepared beforehand; between two sends only the correlation id changes, and with --idempotent the
 * sequence and the CRC. Every answer is checked: its error code, its order (correlation ids) and that offsets rise.
 * Without --rate the next request leaves when an answer comes (closed loop). With it requests leave by the clock, and
 * their delay counts from when they were due (open loop), so that a stall of the broker is not left out.
 *
 * Prints one line of JSON. Ends by itself: after --requests, and at the latest after --seconds.
 */
#include "kafka_wire.h"

#include <fcntl.h>
#include <getopt.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>

#define MAX_CONNECTIONS 4096
#define RECEIVE_BYTES 65536

struct connection {
    int fd, wants_write, in_flight;
    int32_t next_id, awaited_id;
    int32_t next_sequence;
    int64_t last_offsets[MAX_BATCHES]; /* by partition, counted from the first of the request */
    uint8_t *frame;             /* the prepared request */
    uint8_t *out;               /* what is not sent yet: at most M frames */
    size_t out_from, out_to;
    uint8_t *in;
    size_t in_bytes;
    int64_t *due;               /* ring of M: when each request in flight was due */
    struct topic topic;
    size_t error_at;
};

static const char *host = "127.0.0.1";
static int port = 9092, connections = 32, depth = 1, records = 1, record_bytes = 100, acks = 1, version = 12;
static int partitions = 1, batches = 1, idempotent, max_seconds = 120;
static int64_t requests = 100000, rate;
static struct topic topic = {.name = "benchmark"};

static struct connection all[MAX_CONNECTIONS];
static size_t frame_bytes, batch_at, batch_bytes;
static int64_t started, done;
static uint32_t *latencies;
static int poll_fd;

static void flush_out(struct connection *c) {
    while (c->out_from < c->out_to) {
        ssize_t n = send(c->fd, c->out + c->out_from, c->out_to - c->out_from, MSG_NOSIGNAL);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0 && errno == EAGAIN) break;
        if (n < 0) die("sending: %s", strerror(errno));
        c->out_from += (size_t)n;
    }
    int wants_write = c->out_from < c->out_to;
    if (!wants_write) c->out_from = c->out_to = 0;
    if (wants_write != c->wants_write) {
        struct epoll_event event = {.events = EPOLLIN | (wants_write ? EPOLLOUT : 0), .data.ptr = c};
        epoll_ctl(poll_fd, EPOLL_CTL_MOD, c->fd, &event);
        c->wants_write = wants_write;
    }
}

static void queue_request(struct connection *c, int64_t due) {
    put32(c->frame + CORRELATION_ID_AT, (uint32_t)c->next_id);
    if (idempotent) {
        uint8_t *batch = c->frame + batch_at;
        put32(batch + BATCH_SEQUENCE_AT, (uint32_t)c->next_sequence);
        put32(batch + BATCH_CRC_AT, crc32c(batch + BATCH_COVERED_AT, batch_bytes - BATCH_COVERED_AT));
        c->next_sequence = (int32_t)(((uint32_t)c->next_sequence + (uint32_t)records) & 0x7fffffff);
    }
    if (c->out_to + frame_bytes > frame_bytes * (size_t)(depth + 1)) {
        memmove(c->out, c->out + c->out_from, c->out_to - c->out_from);
        c->out_to -= c->out_from;
        c->out_from = 0;
    }
    memcpy(c->out + c->out_to, c->frame, frame_bytes);
    c->out_to += frame_bytes;
    c->due[c->next_id % depth] = due;
    c->next_id++;
    c->in_flight++;
    started++;
}

static void take_answer(struct connection *c, const uint8_t *answer, size_t length, int64_t now) {
    if (length < c->error_at + 10 + (size_t)(batches - 1) * PRODUCED_PARTITION_BYTES) die("an answer of %zu bytes is too short", length);
    if ((int32_t)get32(answer + 4) != c->awaited_id)
        die("answer %d came where %d was awaited: out of order", (int32_t)get32(answer + 4), c->awaited_id);
    for (int i = 0; i < batches; i++) {
        const uint8_t *at = answer + c->error_at + i * PRODUCED_PARTITION_BYTES;
        int error = get16(at);
        int64_t offset = (int64_t)get64(at + 2);
        uint32_t number = get32(at - 4) - (uint32_t)c->topic.partition;
        if (error) die("Produce: error %d after %lld requests", (int16_t)error, (long long)done);
        if (number >= (uint32_t)batches) die("an answer for a partition that was not in the request");
        int64_t last = c->last_offsets[number];
        if (offset < last + (last < 0 ? 1 : records)) die("offset %lld came after %lld", (long long)offset, (long long)last);
        c->last_offsets[number] = offset;
    }
    latencies[done++] = clamp_ns(now - c->due[c->awaited_id % depth]);
    c->awaited_id++;
    c->in_flight--;
}

static void on_readable(struct connection *c) {
    ssize_t n = recv(c->fd, c->in + c->in_bytes, RECEIVE_BYTES - c->in_bytes, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n <= 0) die("receiving: %s", n ? strerror(errno) : "the broker closed the connection");
    c->in_bytes += (size_t)n;
    int64_t now = now_ns();
    size_t at = 0;
    while (c->in_bytes - at >= 4) {
        size_t length = 4 + get32(c->in + at);
        if (length > RECEIVE_BYTES) die("an answer of %zu bytes is larger than expected", length);
        if (c->in_bytes - at < length) break;
        take_answer(c, c->in + at, length, now);
        at += length;
        if (!rate && started < requests) queue_request(c, now);
    }
    memmove(c->in, c->in + at, c->in_bytes - at);
    c->in_bytes -= at;
    flush_out(c);
}

/* Open loop: send all that is due, each on the next connection that has room. */
static void send_due(int64_t began) {
    static int next;
    int64_t now = now_ns();
    for (int full = 0; started < requests && full < connections;) {
        int64_t due = began + started * 1000000000 / rate;
        if (due > now) return;
        struct connection *c = &all[next++ % connections];
        if (c->in_flight == depth) {
            full++;
            continue;
        }
        full = 0;
        queue_request(c, due);
        flush_out(c);
    }
}

static void open_connection(struct connection *c, int number) {
    c->fd = connect_to(host, port);
    int64_t producer_id = -1;
    int16_t producer_epoch = -1;
    if (idempotent) init_producer_id(c->fd, &producer_id, &producer_epoch);
    c->topic = topic;
    c->topic.partition = number % partitions;
    c->error_at = produce_error_at(&c->topic, version);
    for (int i = 0; i < batches; i++) c->last_offsets[i] = -1;
    uint8_t *batch = malloc(batch_bound(records, record_bytes));
    batch_bytes = (size_t)(put_batch(batch, records, record_bytes, producer_id, producer_epoch) - batch);
    c->frame = malloc((batch_bytes + 16) * (size_t)batches + 512);
    frame_bytes = put_produce(c->frame, version, acks, &c->topic, batch, batch_bytes, batches, &batch_at);
    free(batch);
    c->out = malloc(frame_bytes * (size_t)(depth + 1));
    c->in = malloc(RECEIVE_BYTES);
    c->due = calloc((size_t)depth, sizeof *c->due);
    if (!c->frame || !c->out || !c->in || !c->due) die("out of memory");
    fcntl(c->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = c};
    epoll_ctl(poll_fd, EPOLL_CTL_ADD, c->fd, &event);
}

static void parse_arguments(int argc, char **argv) {
    static const struct option options[] = {
        {"host", 1, 0, 'h'},         {"port", 1, 0, 'p'},    {"topic", 1, 0, 't'},      {"topic-id", 1, 0, 'i'},
        {"connections", 1, 0, 'c'},  {"depth", 1, 0, 'd'},   {"requests", 1, 0, 'n'},   {"records", 1, 0, 'r'},
        {"record-bytes", 1, 0, 'b'}, {"acks", 1, 0, 'a'},    {"version", 1, 0, 'v'},    {"partitions", 1, 0, 'P'},
        {"rate", 1, 0, 'R'},         {"seconds", 1, 0, 's'}, {"idempotent", 0, 0, 'I'},
        {"batches", 1, 0, 'B'},      {0, 0, 0, 0}};
    for (int option; (option = getopt_long(argc, argv, "", options, 0)) != -1;) {
        switch (option) {
            case 'h': host = optarg; break;
            case 'p': port = atoi(optarg); break;
            case 't': topic.name = optarg; break;
            case 'i': parse_topic_id(&topic, optarg); break;
            case 'c': connections = atoi(optarg); break;
            case 'd': depth = atoi(optarg); break;
            case 'n': requests = atoll(optarg); break;
            case 'r': records = atoi(optarg); break;
            case 'b': record_bytes = atoi(optarg); break;
            case 'a': acks = atoi(optarg); break;
            case 'v': version = atoi(optarg); break;
            case 'P': partitions = atoi(optarg); break;
            case 'R': rate = atoll(optarg); break;
            case 's': max_seconds = atoi(optarg); break;
            case 'I': idempotent = 1; break;
            case 'B': batches = atoi(optarg); break;
            default: exit(2);
        }
    }
    if (connections < 1 || connections > MAX_CONNECTIONS || depth < 1 || records < 1 || requests < 1 || partitions < 1 ||
        record_bytes < 0 || version < 9 || version > 13 || acks == 0)
        die("arguments out of range (versions 9 to 13, acks 1 or -1, at most %d connections)", MAX_CONNECTIONS);
    if (batches < 1 || batches > MAX_BATCHES || (batches > 1 && (idempotent || partitions > 1)))
        die("--batches is at most %d, and goes with neither --idempotent nor --partitions", MAX_BATCHES);
}

int main(int argc, char **argv) {
    parse_arguments(argc, argv);
    latencies = malloc((size_t)requests * sizeof *latencies);
    if (!latencies) die("out of memory");
    poll_fd = epoll_create1(0);
    for (int i = 0; i < connections; i++) open_connection(&all[i], i);

    int timer = timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
    if (rate) {
        int64_t interval = 1000000000 / rate > 50000 ? 1000000000 / rate : 50000;
        struct itimerspec every = {.it_interval = {.tv_nsec = interval}, .it_value = {.tv_nsec = interval}};
        if (interval >= 1000000000) die("--rate must be above 1");
        timerfd_settime(timer, 0, &every, NULL);
        epoll_ctl(poll_fd, EPOLL_CTL_ADD, timer, &event);
    }

    double cpu_before = own_cpu_seconds();
    int64_t began = now_ns(), deadline = began + (int64_t)max_seconds * 1000000000;
    if (!rate) {
        for (int i = 0; i < connections; i++) {
            for (int k = 0; k < depth && started < requests; k++) queue_request(&all[i], now_ns());
            flush_out(&all[i]);
        }
    }
    struct epoll_event ready[256];
    while (done < requests) {
        int n = epoll_wait(poll_fd, ready, 256, 1000);
        if (n < 0 && errno != EINTR) die("epoll_wait: %s", strerror(errno));
        for (int i = 0; i < n; i++) {
            struct connection *c = ready[i].data.ptr;
            if (!c) {
                uint64_t ticks;
                if (read(timer, &ticks, sizeof ticks) < 0 && errno != EAGAIN) die("timer: %s", strerror(errno));
                continue;
            }
            if (ready[i].events & EPOLLOUT) flush_out(c);
            if (ready[i].events & (EPOLLIN | EPOLLHUP | EPOLLERR)) on_readable(c);
        }
        if (rate) send_due(began);
        if (now_ns() > deadline) break;
    }
    double seconds = (now_ns() - began) / 1e9;
    if (!done) die("no answer within %d s", max_seconds);
    printf("{\"requests\": %lld, \"seconds\": %.4f, \"requests_per_s\": %.1f, \"record_bytes_per_s\": %.0f, "
           "\"frame_bytes\": %zu, \"batch_bytes\": %zu, \"client_cpu_s\": %.3f, \"complete\": %s, ",
           (long long)done, seconds, done / seconds, (double)done * records * record_bytes / seconds, frame_bytes,
           batch_bytes, own_cpu_seconds() - cpu_before, done == requests ? "true" : "false");
    print_latencies(latencies, (size_t)done);
    printf("}\n");
    return 0;
}
