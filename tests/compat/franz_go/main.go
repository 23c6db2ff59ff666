// What franz-go and its kadm do in each scenario: program BOOTSTRAP_SERVERS SCENARIO JSON. See test_franz_go.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Given are the arguments of all scenarios together.
type Given struct {
	Topic, To, Group, ID, Codec, Balancer string
	Acks, Count, Every                    int
	Time                                  int64
	Uncommitted                           bool
}

type told map[string]any

var (
	given   Given
	servers []string
	telling sync.Mutex
	ctx     context.Context
)

func main() {
	servers = strings.Split(os.Args[1], ",")
	check(json.Unmarshal([]byte(os.Args[3]), &given))
	var stop func()
	ctx, stop = signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	scenarios := map[string]func(){
		"topics": topics, "groups": groups, "produce": produce, "read": read, "member": member,
		"transactions": transactions, "copy": copying,
	}
	scenarios[os.Args[2]]()
}

func check(err error) {
	if err != nil {
		log.Fatalf("%T: %v", err, err)
	}
}

func tell(what told) {
	telling.Lock()
	defer telling.Unlock()
	check(json.NewEncoder(os.Stdout).Encode(what))
}

// What went wrong, by Kafka's name of it.
func nameOf(err error) string {
	var code *kerr.Error
	switch {
	case err == nil:
		return "none"
	case errors.As(err, &code):
		return code.Message
	}
	log.Fatalf("%T: %v", err, err)
	return ""
}

func client(options ...kgo.Opt) *kgo.Client {
	client, err := kgo.NewClient(append(common(), options...)...)
	check(err)
	return client
}

func common() []kgo.Opt {
	return []kgo.Opt{kgo.SeedBrokers(servers...), kgo.ClientID("franz-go")}
}

func isolation() kgo.Opt {
	if given.Uncommitted {
		return kgo.FetchIsolationLevel(kgo.ReadUncommitted())
	}
	return kgo.FetchIsolationLevel(kgo.ReadCommitted())
}

func topics() {
	admin := kadm.NewClient(client())
	defer admin.Close()
	name, retention := given.Topic, "70000"
	configs := map[string]*string{"retention.ms": &retention}
	result := told{}
	create := func(name string, replicas int16) string {
		answers, err := admin.CreateTopics(ctx, 3, replicas, configs, name)
		check(err)
		return nameOf(answers[name].Err)
	}
	validated, err := admin.ValidateCreateTopics(ctx, 3, 1, configs, name)
	check(err)
	result["validated"] = nameOf(validated[name].Err)
	result["created"], result["again"], result["invalid"] = create(name, -1), create(name, 1), create("a b", 1)
	result["replicas"] = create(name+"-r", 99)
	grown, err := admin.UpdatePartitions(ctx, 5, name)
	check(err)
	fewer, err := admin.UpdatePartitions(ctx, 2, name)
	check(err)
	result["grown"], result["fewer"] = nameOf(grown[name].Err), nameOf(fewer[name].Err)
	alter := func(configs ...kadm.AlterConfig) string {
		altered, err := admin.AlterTopicConfigs(ctx, configs, name)
		check(err)
		return nameOf(altered[0].Err)
	}
	segment, soon := "80000", "soon"
	result["altered"] = alter(kadm.AlterConfig{Name: "segment.ms", Value: &segment}, kadm.AlterConfig{Op: kadm.DeleteConfig, Name: "retention.ms"})
	result["wrong"] = alter(kadm.AlterConfig{Name: "segment.ms", Value: &soon})
	described, err := admin.DescribeTopicConfigs(ctx, name)
	check(err)
	shown := map[string]string{}
	for _, config := range described[0].Configs {
		if config.Key == "retention.ms" || config.Key == "segment.ms" {
			shown[config.Key] = fmt.Sprint(config.MaybeValue(), " ", config.Source)
		}
	}
	result["configs"] = shown
	listed, err := admin.ListTopics(ctx, name)
	check(err)
	result["partitions"], result["replicated"] = len(listed[name].Partitions), listed[name].Partitions.NumReplicas()
	brokers, err := admin.BrokerMetadata(ctx)
	check(err)
	result["brokers"] = len(brokers.Brokers)
	folders, err := admin.DescribeAllLogDirs(ctx, listed.TopicsSet())
	check(err)
	found := 0
	folders.Each(func(folder kadm.DescribedLogDir) { folder.Topics.Each(func(kadm.DescribedLogDirPartition) { found++ }) })
	result["folders"] = found
	elected, err := admin.ElectLeaders(ctx, kadm.ElectPreferredReplica, listed.TopicsSet())
	check(err)
	result["elected"] = nameOf(elected[name][0].Err)
	versions, err := admin.ApiVersions(ctx)
	check(err)
	result["versions"] = len(versions)
	deleted, err := admin.DeleteTopics(ctx, name)
	check(err)
	gone, err := admin.DeleteTopics(ctx, name)
	check(err)
	result["deleted"], result["gone"] = nameOf(deleted[name].Err), nameOf(gone[name].Err)
	tell(result)
}

func groups() {
	admin := kadm.NewClient(client())
	defer admin.Close()
	topic, group := given.Topic, given.Group
	result := told{}
	offset := func(offsets kadm.ListedOffsets, err error) []int64 {
		check(err)
		check(offsets[topic][0].Err)
		return []int64{offsets[topic][0].Offset, offsets[topic][0].Timestamp}
	}
	result["first"] = offset(admin.ListStartOffsets(ctx, topic))
	result["end"] = offset(admin.ListEndOffsets(ctx, topic))
	result["committed end"] = offset(admin.ListCommittedOffsets(ctx, topic))
	result["newest"] = offset(admin.ListMaxTimestampOffsets(ctx, topic))
	result["timed"] = offset(admin.ListOffsetsAfterMilli(ctx, given.Time, topic))
	remove := func(at int64) []any {
		offsets := kadm.Offsets{}
		offsets.AddOffset(topic, 0, at, -1)
		removed, err := admin.DeleteRecords(ctx, offsets)
		check(err)
		return []any{nameOf(removed[topic][0].Err), removed[topic][0].LowWatermark}
	}
	result["removed"], result["beyond"] = remove(3), remove(99)[0]
	epoch, err := admin.OffsetForLeaderEpoch(ctx, kadm.OffsetForLeaderEpochRequest{topic: {0: 0}})
	check(err)
	result["epoch"] = epoch[topic][0].EndOffset
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: topic, Partition: 0, At: 5, LeaderEpoch: 0, Metadata: "note"})
	check(admin.CommitAllOffsets(ctx, group, offsets))
	fetched, err := admin.FetchOffsets(ctx, group)
	check(err)
	kept, _ := fetched.Lookup(topic, 0)
	result["offset"] = []any{kept.At, kept.Metadata, kept.LeaderEpoch}
	listed, err := admin.ListGroups(ctx, "Empty")
	check(err)
	result["listed"] = listed[group].State
	lag, err := admin.Lag(ctx, group)
	check(err)
	result["lag"] = lag[group].Lag.Total()
	forgotten, err := admin.DeleteOffsets(ctx, group, offsets.TopicsSet())
	check(err)
	result["forgotten"] = nameOf(forgotten[topic][0])
	check(admin.CommitAllOffsets(ctx, group, offsets))
	deleted, err := admin.DeleteGroups(ctx, group)
	check(err)
	gone, err := admin.DeleteGroups(ctx, group)
	check(err)
	result["deleted"], result["gone"] = nameOf(deleted[group].Err), nameOf(gone[group].Err)
	tell(result)
}

func codec() kgo.Opt {
	codecs := map[string]kgo.CompressionCodec{
		"none": kgo.NoCompression(), "gzip": kgo.GzipCompression(), "snappy": kgo.SnappyCompression(),
		"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression(),
	}
	return kgo.ProducerBatchCompression(codecs[given.Codec])
}

func record(number int) *kgo.Record {
	return &kgo.Record{
		Topic: given.Topic, Key: fmt.Appendf(nil, "k%d", number), Value: fmt.Appendf(nil, "v%d", number),
		Headers:   []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h", Value: nil}, {Key: "h", Value: []byte{}}},
		Timestamp: time.UnixMilli(given.Time + int64(number)),
	}
}

// Half of it one batch after the other, half as fast as it goes; idempotent unless acks says otherwise.
func produce() {
	options := []kgo.Opt{codec(), kgo.DefaultProduceTopic(given.Topic)}
	switch given.Acks {
	case 0:
		options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	case 1:
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	}
	producer := client(options...)
	records := []*kgo.Record{}
	for number := range given.Count / 2 {
		records = append(records, record(number))
	}
	check(producer.ProduceSync(ctx, records...).FirstErr())
	for number := given.Count / 2; number < given.Count; number++ {
		producer.Produce(ctx, record(number), func(_ *kgo.Record, err error) { check(err) })
	}
	check(producer.Flush(ctx))
	tooLarge := &kgo.Record{Topic: given.Topic, Value: []byte(strings.Repeat("x", 2_000_000))}
	large := client(kgo.ProducerBatchMaxBytes(3_000_000), kgo.ProducerBatchCompression(kgo.NoCompression()))
	refused := large.ProduceSync(ctx, tooLarge).FirstErr()
	large.Close()
	producer.Close()
	tell(told{"refused": nameOf(refused)})
}

func read() {
	start := map[string]map[int32]kgo.Offset{given.Topic: {0: kgo.NewOffset().AtStart()}}
	consumer := client(kgo.ConsumePartitions(start), isolation())
	defer consumer.Close()
	rows := [][]any{}
	for len(rows) < given.Count {
		fetches := consumer.PollFetches(ctx)
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			headers := [][]any{}
			for _, header := range record.Headers {
				headers = append(headers, []any{header.Key, header.Value})
			}
			rows = append(rows, []any{record.Offset, string(record.Key), string(record.Value), headers, record.Timestamp.UnixMilli()})
		})
	}
	tell(told{"messages": rows})
}

func balancer() kgo.Opt {
	balancers := map[string]kgo.GroupBalancer{
		"range": kgo.RangeBalancer(), "roundrobin": kgo.RoundRobinBalancer(), "sticky": kgo.StickyBalancer(),
		"cooperative": kgo.CooperativeStickyBalancer(),
	}
	return kgo.Balancers(balancers[given.Balancer])
}

// A member of a group until SIGTERM. What it tells of has been marked, and is committed before it is given away.
func member() {
	held := map[int32]bool{}
	assigned := func() {
		partitions := []int{}
		for partition := range held {
			partitions = append(partitions, int(partition))
		}
		sort.Ints(partitions)
		tell(told{"assigned": partitions})
	}
	gave := func(_ context.Context, _ *kgo.Client, by map[string][]int32) {
		for _, partition := range by[given.Topic] {
			held[partition] = true
		}
		assigned()
	}
	taken := func(_ context.Context, consumer *kgo.Client, by map[string][]int32) {
		check(consumer.CommitMarkedOffsets(context.Background()))
		for _, partition := range by[given.Topic] {
			delete(held, partition)
		}
		assigned()
	}
	options := []kgo.Opt{
		kgo.ConsumerGroup(given.Group), kgo.ConsumeTopics(given.Topic), balancer(), kgo.AutoCommitMarks(),
		kgo.HeartbeatInterval(200 * time.Millisecond), kgo.OnPartitionsAssigned(gave), kgo.OnPartitionsRevoked(taken),
		kgo.BlockRebalanceOnPoll(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	}
	if given.ID != "" {
		options = append(options, kgo.InstanceID(given.ID))
	}
	consumer := client(options...)
	for {
		fetches := consumer.PollFetches(ctx)
		if ctx.Err() != nil {
			break
		}
		check(fetches.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			tell(told{"read": []int64{int64(record.Partition), record.Offset}})
			consumer.MarkCommitRecords(record)
		})
		consumer.AllowRebalance()
	}
	check(consumer.CommitMarkedOffsets(context.Background()))
	consumer.CloseAllowingRebalance()
}

func transactions() {
	transactional := func() *kgo.Client {
		return client(kgo.TransactionalID(given.ID), kgo.DefaultProduceTopic(given.Topic), kgo.TransactionTimeout(20*time.Second))
	}
	send := func(producer *kgo.Client, value string) error {
		return producer.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr()
	}
	admin := kadm.NewClient(client())
	defer admin.Close()
	state := func() string {
		described, err := admin.DescribeTransactions(ctx, given.ID)
		check(err)
		check(described[given.ID].Err)
		return described[given.ID].State
	}
	producer := transactional()
	check(producer.BeginTransaction())
	check(send(producer, "committed 1"))
	check(send(producer, "committed 2"))
	ongoing := state()
	listed, err := admin.ListTransactions(ctx, nil, []string{"Ongoing"})
	check(err)
	_, isListed := listed[given.ID]
	producers, err := admin.DescribeProducers(ctx, kadm.TopicsSet{given.Topic: {0: {}}})
	check(err)
	begins := []int64{}
	for _, each := range producers[given.Topic].Partitions[0].ActiveProducers.Sorted() {
		begins = append(begins, each.CurrentTxnStartOffset)
	}
	check(producer.EndTransaction(ctx, kgo.TryCommit))
	check(producer.BeginTransaction())
	check(send(producer, "aborted"))
	check(producer.EndTransaction(ctx, kgo.TryAbort))
	check(producer.BeginTransaction())
	check(send(producer, "fenced"))
	heir := transactional()
	check(heir.BeginTransaction())
	check(send(heir, "committed 3"))
	fenced := send(producer, "too late")
	check(heir.EndTransaction(ctx, kgo.TryCommit))
	tell(told{"fenced": nameOf(fenced), "ongoing": ongoing, "listed": isListed, "begins": begins})
}

// Copies a topic in transactions, as a member of a group, until SIGTERM.
func copying() {
	session, err := kgo.NewGroupTransactSession(append(common(),
		kgo.TransactionalID(given.ID), kgo.ConsumerGroup(given.Group), kgo.ConsumeTopics(given.Topic),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.RequireStableFetchOffsets(), balancer(),
		kgo.HeartbeatInterval(200*time.Millisecond), kgo.SessionTimeout(6*time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DefaultProduceTopic(given.To))...)
	check(err)
	ended := 0
	for {
		fetches := session.PollRecords(ctx, given.Every)
		if ctx.Err() != nil {
			break
		}
		check(fetches.Err())
		check(session.Begin())
		promise := kgo.AbortingFirstErrPromise(session.Client())
		count := 0
		fetches.EachRecord(func(record *kgo.Record) {
			count++
			copied := &kgo.Record{Key: record.Key, Value: record.Value}
			session.Produce(context.Background(), copied, promise.Promise())
		})
		// Every fourth transaction is aborted, and its records come again.
		ended++
		committed, err := session.End(context.Background(), kgo.TransactionEndTry(promise.Err() == nil && ended%4 != 0))
		check(err)
		tell(told{"ended": []any{committed, count}})
	}
	session.Close()
}
