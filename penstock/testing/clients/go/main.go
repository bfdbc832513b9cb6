// A fast exactly-once loop with franz-go: copies one topic into another, a few records a transaction, until it is killed.
package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	brokers, input, output, name := os.Args[1], os.Args[2], os.Args[3], os.Args[4]
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(brokers, ",")...),
		kgo.DefaultProduceTopic(output),
		kgo.TransactionalID(name),
		kgo.TransactionTimeout(10*time.Second),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.ConsumerGroup(name),
		kgo.ConsumeTopics(input),
		kgo.SessionTimeout(10*time.Second),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	)
	if err != nil {
		fail("start", err)
	}
	defer session.Close()
	context := context.Background()
	for {
		fetched := session.PollRecords(context, 20)
		if fetched.NumRecords() == 0 {
			continue
		}
		if err := session.Begin(); err != nil {
			fail("begin", err)
		}
		promise := kgo.AbortingFirstErrPromise(session.Client())
		fetched.EachRecord(func(record *kgo.Record) {
			copied := &kgo.Record{Value: record.Value, Partition: record.Partition}
			session.Produce(context, copied, promise.Promise())
		})
		good := promise.Err() == nil
		if _, err := session.End(context, kgo.TransactionEndTry(good)); err != nil {
			fail("end", err)
		}
	}
}

func fail(what string, err error) {
	fmt.Fprintln(os.Stderr, what, err)
	os.Exit(1)
}
