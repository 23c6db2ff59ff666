// What sarama does in each scenario: program BOOTSTRAP_SERVERS SCENARIO JSON. See test_sarama.py.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
)

// Given are the arguments of all scenarios together.
type Given struct {
	Topic, Group, ID, Codec, Strategy string
	Acks                              *int16
	Count, Start                      int
	Time                              int64
	Idempotent, Uncommitted           bool
}

type told map[string]any

var (
	given   Given
	servers []string
	telling sync.Mutex
)

func main() {
	servers = strings.Split(os.Args[1], ",")
	check(json.Unmarshal([]byte(os.Args[3]), &given))
	scenarios := map[string]func(){
		"topics": topics, "groups": groups, "produce": produce, "asynchronous": asynchronous, "read": read,
		"member": member, "transactions": transactions,
	}
	scenarios[os.Args[2]]()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}

func tell(what told) {
	telling.Lock()
	defer telling.Unlock()
	check(json.NewEncoder(os.Stdout).Encode(what))
}

// What went wrong, by Kafka's number of it.
func codeOf(err error) int16 {
	var code sarama.KError
	switch {
	case err == nil:
		return 0
	case errors.As(err, &code):
		return int16(code)
	}
	log.Fatalf("%T: %v", err, err)
	return -1
}

func config() *sarama.Config {
	config := sarama.NewConfig()
	config.Version = sarama.V4_3_0_0
	config.ClientID = "sarama"
	config.Producer.Return.Successes = true
	config.Consumer.Return.Errors = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	if !given.Uncommitted {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	if given.Codec != "" {
		check(config.Producer.Compression.UnmarshalText([]byte(given.Codec)))
	}
	if given.Acks != nil {
		config.Producer.RequiredAcks = sarama.RequiredAcks(*given.Acks)
	}
	if given.Idempotent {
		config.Producer.Idempotent = true
		config.Producer.RequiredAcks = sarama.WaitForAll
		config.Net.MaxOpenRequests = 1
	}
	return config
}

func topics() {
	admin, err := sarama.NewClusterAdmin(servers, config())
	check(err)
	defer admin.Close()
	name, retention, segment, soon := given.Topic, "70000", "80000", "soon"
	detail := &sarama.TopicDetail{NumPartitions: 3, ReplicationFactor: 1, ConfigEntries: map[string]*string{"retention.ms": &retention}}
	result := told{"validated": codeOf(admin.CreateTopic(name, detail, true))}
	result["created"] = codeOf(admin.CreateTopic(name, detail, false))
	result["again"] = codeOf(admin.CreateTopic(name, detail, false))
	result["invalid"] = codeOf(admin.CreateTopic("a b", detail, false))
	result["grown"] = codeOf(admin.CreatePartitions(name, 5, nil, false))
	result["fewer"] = codeOf(admin.CreatePartitions(name, 2, nil, false))
	set := map[string]sarama.IncrementalAlterConfigsEntry{"segment.ms": {Operation: sarama.IncrementalAlterConfigsOperationSet, Value: &segment}}
	result["altered"] = codeOf(admin.IncrementalAlterConfig(sarama.TopicResource, name, set, false))
	result["wrong"] = codeOf(admin.AlterConfig(sarama.TopicResource, name, map[string]*string{"segment.ms": &soon}, false))
	entries, err := admin.DescribeConfig(sarama.ConfigResource{Type: sarama.TopicResource, Name: name})
	check(err)
	configs := map[string]string{}
	for _, entry := range entries {
		if entry.Name == "retention.ms" || entry.Name == "segment.ms" || entry.Name == "retention.bytes" {
			configs[entry.Name] = fmt.Sprint(entry.Value, " ", entry.Source)
		}
	}
	result["configs"] = configs
	listed, err := admin.ListTopics()
	check(err)
	result["partitions"] = listed[name].NumPartitions
	brokers, controller, err := admin.DescribeCluster()
	check(err)
	ids := map[int32]bool{}
	for _, broker := range brokers {
		ids[broker.ID()] = true
	}
	result["brokers"], result["controller"] = len(ids), ids[controller]
	folders, err := admin.DescribeLogDirs([]int32{controller})
	check(err)
	result["folders"] = len(folders[controller])
	result["elected"] = electionOf(admin, name)
	result["deleted"] = codeOf(admin.DeleteTopic(name))
	result["gone"] = codeOf(admin.DeleteTopic(name))
	tell(result)
}

func electionOf(admin sarama.ClusterAdmin, name string) int16 {
	results, err := admin.ElectLeaders(sarama.PreferredElection, map[string][]int32{name: {0}})
	check(err)
	return int16(results[name][0].ErrorCode)
}

func groups() {
	admin, err := sarama.NewClusterAdmin(servers, config())
	check(err)
	defer admin.Close()
	result := told{}
	at := func(question int64) []int64 {
		asked := map[string]map[int32]int64{given.Topic: {0: question}}
		offsets, err := admin.ListOffsets(asked, nil)
		check(err)
		return []int64{offsets[given.Topic][0].Offset, offsets[given.Topic][0].Timestamp}
	}
	result["first"], result["end"], result["timed"] = at(sarama.OffsetOldest), at(sarama.OffsetNewest), at(given.Time)
	check(admin.DeleteRecords(given.Topic, map[int32]int64{0: 3}))
	result["after"] = at(sarama.OffsetOldest)
	result["beyond"] = admin.DeleteRecords(given.Topic, map[int32]int64{0: 99}) != nil
	committed := map[string]map[int32]sarama.OffsetAndMetadata{given.Topic: {0: {Offset: 5, Metadata: "note"}}}
	answer, err := admin.AlterConsumerGroupOffsets(given.Group, committed, nil)
	check(err)
	result["committed"] = int16(answer.Errors[given.Topic][0])
	known, err := admin.ListConsumerGroups()
	check(err)
	_, result["listed"] = known[given.Group]
	offsets, err := admin.ListConsumerGroupOffsets(given.Group, map[string][]int32{given.Topic: {0}})
	check(err)
	block := offsets.GetBlock(given.Topic, 0)
	result["offset"] = []any{block.Offset, block.Metadata}
	described, err := admin.DescribeConsumerGroups([]string{given.Group})
	check(err)
	result["state"] = described[0].State
	result["forgotten"] = codeOf(admin.DeleteConsumerGroupOffset(given.Group, given.Topic, 0))
	again, err := admin.AlterConsumerGroupOffsets(given.Group, committed, nil)
	check(err)
	result["again"] = int16(again.Errors[given.Topic][0])
	result["deleted"] = codeOf(admin.DeleteConsumerGroup(given.Group))
	result["gone"] = codeOf(admin.DeleteConsumerGroup(given.Group))
	tell(result)
}

func message(number int) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{
		Topic:     given.Topic,
		Key:       sarama.StringEncoder(fmt.Sprintf("k%d", number)),
		Value:     sarama.StringEncoder(fmt.Sprintf("v%d", number)),
		Headers:   []sarama.RecordHeader{{Key: []byte("h"), Value: []byte("1")}, {Key: []byte("h"), Value: []byte("2")}},
		Timestamp: time.UnixMilli(given.Time + int64(number)),
	}
}

func produce() {
	producer, err := sarama.NewSyncProducer(servers, config())
	check(err)
	messages := []*sarama.ProducerMessage{}
	for number := range given.Count {
		messages = append(messages, message(number))
	}
	check(producer.SendMessages(messages))
	partition, offset, err := producer.SendMessage(&sarama.ProducerMessage{Topic: given.Topic, Key: sarama.StringEncoder("tombstone")})
	check(err)
	check(producer.Close())
	tell(told{"last": []int64{int64(partition), offset}})
}

func asynchronous() {
	producer, err := sarama.NewAsyncProducer(servers, config())
	check(err)
	offsets := map[int32][]int64{}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for success := range producer.Successes() {
			offsets[success.Partition] = append(offsets[success.Partition], success.Offset)
		}
	}()
	go func() {
		for failure := range producer.Errors() {
			log.Fatal(failure)
		}
	}()
	for number := range given.Count {
		producer.Input() <- message(number)
	}
	producer.AsyncClose()
	<-done
	tell(told{"offsets": offsets})
}

func read() {
	consumer, err := sarama.NewConsumer(servers, config())
	check(err)
	defer consumer.Close()
	partition, err := consumer.ConsumePartition(given.Topic, 0, int64(given.Start))
	check(err)
	rows := [][]any{}
	for len(rows) < given.Count {
		select {
		case message := <-partition.Messages():
			headers := []string{}
			for _, header := range message.Headers {
				headers = append(headers, string(header.Key)+"="+string(header.Value))
			}
			rows = append(rows, []any{message.Offset, string(message.Key), string(message.Value), headers, message.Timestamp.UnixMilli()})
		case err := <-partition.Errors():
			log.Fatal(err)
		}
	}
	_, err = consumer.ConsumePartition(given.Topic, 0, 1_000_000)
	tell(told{"messages": rows, "beyond": codeOf(err)})
}

type handler struct{}

func (handler) Setup(session sarama.ConsumerGroupSession) error {
	claims := session.Claims()[given.Topic]
	if claims == nil {
		claims = []int32{}
	}
	tell(told{"assigned": claims})
	return nil
}

func (handler) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (handler) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case message, more := <-claim.Messages():
			if !more {
				return nil
			}
			tell(told{"read": []int64{int64(message.Partition), message.Offset}})
			session.MarkMessage(message, "")
		case <-session.Context().Done():
			return nil
		}
	}
}

// A member of a group until SIGTERM.
func member() {
	config := config()
	strategies := map[string]sarama.BalanceStrategy{
		"range": sarama.NewBalanceStrategyRange(), "sticky": sarama.NewBalanceStrategySticky(),
		"roundrobin": sarama.NewBalanceStrategyRoundRobin(),
	}
	config.Consumer.Group.Rebalance.GroupStrategies = []sarama.BalanceStrategy{strategies[given.Strategy]}
	config.Consumer.Group.Heartbeat.Interval = 200 * time.Millisecond
	config.Consumer.Group.InstanceId = given.ID
	group, err := sarama.NewConsumerGroup(servers, given.Group, config)
	check(err)
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	go func() {
		for err := range group.Errors() {
			log.Print(err)
		}
	}()
	for ctx.Err() == nil {
		check(group.Consume(ctx, []string{given.Topic}, handler{}))
	}
	check(group.Close())
}

func transactional() sarama.SyncProducer {
	given.Idempotent = true
	config := config()
	config.Producer.Transaction.ID = given.ID
	config.Producer.Transaction.Retry.Backoff = 10 * time.Millisecond
	producer, err := sarama.NewSyncProducer(servers, config)
	check(err)
	return producer
}

func send(producer sarama.SyncProducer, value string) error {
	_, _, err := producer.SendMessage(&sarama.ProducerMessage{Topic: given.Topic, Value: sarama.StringEncoder(value)})
	return err
}

func transactions() {
	offset := func(offset int64) map[string][]*sarama.PartitionOffsetMetadata {
		return map[string][]*sarama.PartitionOffsetMetadata{given.Topic: {{Partition: 0, Offset: offset}}}
	}
	producer := transactional()
	check(producer.BeginTxn())
	check(send(producer, "committed 1"))
	check(send(producer, "committed 2"))
	check(producer.AddOffsetsToTxn(offset(7), given.Group))
	check(producer.CommitTxn())
	check(producer.BeginTxn())
	check(send(producer, "aborted"))
	check(producer.AddOffsetsToTxn(offset(9), given.Group))
	check(producer.AbortTxn())
	check(producer.BeginTxn())
	check(send(producer, "fenced"))
	heir := transactional()
	check(heir.BeginTxn())
	check(send(heir, "committed 3"))
	fenced := send(producer, "too late")
	if fenced == nil {
		fenced = producer.CommitTxn()
	}
	check(heir.CommitTxn())
	check(heir.Close())
	admin, err := sarama.NewClusterAdmin(servers, config())
	check(err)
	offsets, err := admin.ListConsumerGroupOffsets(given.Group, map[string][]int32{given.Topic: {0}})
	check(err)
	tell(told{"fenced": fenced != nil, "offset": offsets.GetBlock(given.Topic, 0).Offset})
}
