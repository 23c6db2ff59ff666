// What kafkajs does in each scenario: node main.js BOOTSTRAP_SERVERS SCENARIO JSON. See test_kafkajs.py.
"use strict";
const { CompressionTypes, ConfigResourceTypes, Kafka, logLevel } = require("kafkajs");

process.env.KAFKAJS_NO_PARTITIONER_WARNING = "1";
const [, , servers, scenario, json] = process.argv;
const given = JSON.parse(json ?? "{}");
const kafka = new Kafka({ clientId: "kafkajs", brokers: servers.split(","), logLevel: logLevel.NOTHING });
const tell = (what) => process.stdout.write(JSON.stringify(what) + "\n");
const errorOf = async (doing) => {
  try {
    await doing();
    return "none";
  } catch (error) {
    const types = [...(error.errors ?? []), ...(error.groups ?? []).map((each) => each.error)].map((each) => each.type);
    return error.type ?? error.cause?.type ?? (types.join() || String(error));
  }
};
const until = async (condition) => {
  while (!condition()) await new Promise((resolve) => setTimeout(resolve, 20));
};
const text = (bytes) => (bytes === null || bytes === undefined ? null : bytes.toString("utf8"));
const shown = (headers) =>
  Object.fromEntries(Object.entries(headers ?? {}).map(([name, value]) =>
    [name, Array.isArray(value) ? value.map(text) : text(value)]));

const scenarios = {
  async topics(admin) {
    const { topic } = given;
    const made = { topic, numPartitions: 3, replicationFactor: 1, configEntries: [{ name: "retention.ms", value: "70000" }] };
    const created = await admin.createTopics({ topics: [made], waitForLeaders: true });
    const again = await admin.createTopics({ topics: [made] });
    const invalid = await errorOf(() => admin.createTopics({ topics: [{ topic: "a b", numPartitions: 1 }] }));
    const replicas = await errorOf(() => admin.createTopics({ topics: [{ topic: topic + "-r", replicationFactor: 99 }] }));
    await admin.createPartitions({ topicPartitions: [{ topic, count: 5 }] });
    const fewer = await errorOf(() => admin.createPartitions({ topicPartitions: [{ topic, count: 2 }] }));
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
    const listed = (await admin.listTopics()).includes(topic);
    const resource = { type: ConfigResourceTypes.TOPIC, name: topic };
    const config = async () => {
      const { resources } = await admin.describeConfigs({ includeSynonyms: false, resources: [resource] });
      return Object.fromEntries(resources[0].configEntries.map((each) => [each.configName, [each.configValue, each.isDefault]]));
    };
    const before = await config();
    const entry = (name, value) => ({ ...resource, configEntries: [{ name, value }] });
    await admin.alterConfigs({ validateOnly: false, resources: [entry("segment.ms", "80000")] });
    const after = await config();
    const wrong = await errorOf(() => admin.alterConfigs({ validateOnly: false, resources: [entry("segment.ms", "soon")] }));
    const cluster = await admin.describeCluster();
    await admin.deleteTopics({ topics: [topic] });
    const gone = await errorOf(() => admin.deleteTopics({ topics: [topic] }));
    tell({
      created, again, invalid, replicas, fewer, listed, wrong, gone,
      partitions: topics[0].partitions.map((each) => [each.partitionId, each.isr.length]).sort(),
      before: [before["retention.ms"], before["segment.ms"]],
      after: [after["retention.ms"], after["segment.ms"]],
      brokers: cluster.brokers.length,
      controller: cluster.brokers.some((each) => each.nodeId === cluster.controller),
      cluster: typeof cluster.clusterId,
    });
  },

  async offsets(admin) {
    const { topic, group } = given;
    const ends = await admin.fetchTopicOffsets(topic);
    const byTime = await admin.fetchTopicOffsetsByTimestamp(topic, given.time);
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: "3" }] });
    const deleted = await admin.fetchTopicOffsets(topic);
    const none = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    await admin.setOffsets({ groupId: group, topic, partitions: [{ partition: 0, offset: "5" }] });
    const set = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    const groups = (await admin.listGroups()).groups.filter((each) => each.groupId === group);
    const described = await admin.describeGroups([group]);
    await admin.resetOffsets({ groupId: group, topic, earliest: true });
    const reset = await admin.fetchOffsets({ groupId: group, topics: [topic], resolveOffsets: true });
    const removed = await admin.deleteGroups([group]);
    const missing = await errorOf(() => admin.deleteGroups([group]));
    const offsets = (told) => told[0].partitions.map((each) => each.offset);
    tell({
      ends: ends.map((each) => [each.low, each.high]), byTime: byTime.map((each) => each.offset),
      deleted: deleted.map((each) => [each.low, each.high]),
      none: offsets(none), set: offsets(set), reset: offsets(reset), missing,
      listed: groups.length, state: described.groups[0].state, removed: removed.map((each) => each.errorCode),
    });
  },

  async produce() {
    const producer = kafka.producer({ idempotent: given.idempotent, maxInFlightRequests: 1 });
    await producer.connect();
    const compression = given.codec === "gzip" ? CompressionTypes.GZIP : CompressionTypes.None;
    const messages = given.messages.map(({ key, value, headers, timestamp }) => ({ key, value, headers, timestamp }));
    const acks = given.acks ?? -1;
    const sent = await producer.send({ topic: given.topic, acks, compression, messages });
    const tooLarge = await errorOf(() =>
      producer.send({ topic: given.topic, acks: -1, messages: [{ value: Buffer.alloc(2_000_000, 1) }] }));
    await producer.disconnect();
    tell({ sent: sent.map((each) => [each.partition, each.errorCode, each.baseOffset]), tooLarge });
  },

  async read() {
    const consumer = kafka.consumer({ groupId: given.group, readUncommitted: given.uncommitted ?? false });
    await consumer.connect();
    await consumer.subscribe({ topic: given.topic, fromBeginning: true });
    const messages = [];
    await consumer.run({
      autoCommit: false,
      eachMessage: async ({ partition, message }) => {
        messages.push([partition, message.offset, text(message.key), text(message.value), shown(message.headers), message.timestamp]);
      },
    });
    await until(() => messages.length >= given.count);
    await consumer.disconnect();
    tell({ messages });
  },

  // Reads in batches, commits by itself, seeks back once, and tells of what it holds.
  async batches() {
    const consumer = kafka.consumer({ groupId: given.group, maxBytesPerPartition: given.maxBytes ?? 1_048_576 });
    await consumer.connect();
    await consumer.subscribe({ topic: given.topic, fromBeginning: true });
    const batches = [];
    let seeked = false;
    await consumer.run({
      eachBatchAutoResolve: false,
      eachBatch: async ({ batch, resolveOffset, heartbeat, commitOffsetsIfNecessary, isStale, isRunning }) => {
        const values = [];
        for (const message of batch.messages) {
          if (isStale() || !isRunning()) break;
          values.push(text(message.value));
          resolveOffset(message.offset);
        }
        await heartbeat();
        await commitOffsetsIfNecessary();
        batches.push([batch.partition, batch.firstOffset(), batch.lastOffset(), batch.highWatermark, values]);
      },
    });
    const read = () => batches.reduce((sum, each) => sum + each[4].length, 0);
    await until(() => read() >= given.count);
    const first = read();
    if (!seeked) consumer.seek({ topic: given.topic, partition: 0, offset: String(given.seek) });
    seeked = true;
    await until(() => read() >= first + given.again);
    await consumer.disconnect();
    tell({ batches, first });
  },

  // A member of a group until SIGTERM: one line for each assignment and each batch.
  async member() {
    const consumer = kafka.consumer({ groupId: given.group, heartbeatInterval: 200, sessionTimeout: 6_000, rebalanceTimeout: 10_000 });
    consumer.on(consumer.events.GROUP_JOIN, ({ payload }) =>
      tell({ assigned: payload.memberAssignment[given.topic] ?? [], leader: payload.isLeader, protocol: payload.groupProtocol }));
    await consumer.connect();
    await consumer.subscribe({ topic: given.topic, fromBeginning: true });
    const stopped = new Promise((resolve) => process.once("SIGTERM", resolve));
    await consumer.run({
      autoCommitThreshold: 1,
      eachMessage: async ({ partition, message }) => tell({ read: [partition, Number(message.offset)] }),
    });
    await stopped;
    await consumer.disconnect();
  },

  async transactions(admin) {
    const { topic, group } = given;
    const options = { transactionalId: given.id, maxInFlightRequests: 1, idempotent: true };
    const producer = kafka.producer(options);
    await producer.connect();
    const send = (to, value) => to.send({ topic, messages: [{ value, partition: 0 }] });
    const first = await producer.transaction();
    await send(first, "committed 1");
    await send(first, "committed 2");
    await first.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset: "7" }] }] });
    await first.commit();
    const second = await producer.transaction();
    await send(second, "aborted");
    await second.sendOffsets({ consumerGroupId: group, topics: [{ topic, partitions: [{ partition: 0, offset: "9" }] }] });
    await second.abort();
    const third = await producer.transaction();
    await send(third, "fenced");
    const heir = kafka.producer(options);
    await heir.connect();
    const last = await heir.transaction();
    await send(last, "committed 3");
    const fenced = await errorOf(async () => {
      await send(third, "too late");
      await third.commit();
    });
    await last.commit();
    const offsets = await admin.fetchOffsets({ groupId: group, topics: [topic] });
    await heir.disconnect();
    await producer.disconnect();
    tell({ fenced, offset: offsets[0].partitions[0].offset });
  },
};

(async () => {
  const admin = kafka.admin();
  await admin.connect();
  await scenarios[scenario](admin);
  await admin.disconnect();
})().then(() => process.stdout.write("", () => process.exit(0)), (error) => {
  console.error(error);
  process.exit(1);
});
