// Package main reads all records of topics by Go's clients of Kafka.
//
// Each line of standard input is a client (franz-go or sarama), servers, a topic, an isolation, partitions (0,1) and
// the number of records, apart by tabs. For each a line is printed: the records, apart by spaces, each
// partition,offset,timestamp,key,value,headers with bytes in base64 and - for null; or an error.
package main

import (
	"bufio"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	committed = "read_committed"
	limit     = 120 * time.Second
	// More records than there should be would come within this time.
	quiet = 200 * time.Millisecond
)

func main() {
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		request := strings.Split(lines.Text(), "\t")
		count, _ := strconv.Atoi(request[5])
		read := readBySarama
		if request[0] == "franz-go" {
			read = readByFranz
		}
		records, err := read(request[1], request[2], request[3], numbersOf(request[4]), count)
		if err != nil {
			fmt.Println("error", err)
			continue
		}
		fmt.Println(strings.Join(records, " "))
	}
}

func numbersOf(text string) []int32 {
	var found []int32
	for _, each := range strings.Split(text, ",") {
		number, _ := strconv.Atoi(each)
		found = append(found, int32(number))
	}
	return found
}

func encoded(data []byte) string {
	if data == nil {
		return "-"
	}
	return base64.StdEncoding.EncodeToString(data)
}

func row(partition int32, offset, timestamp int64, key, value []byte, headers []string) string {
	return fmt.Sprintf(
		"%d,%d,%d,%s,%s,%s", partition, offset, timestamp, encoded(key), encoded(value),
		strings.Join(headers, ";"),
	)
}

func readByFranz(
	servers, topic, isolation string, partitions []int32, count int,
) ([]string, error) {
	offsets := map[int32]kgo.Offset{}
	for _, partition := range partitions {
		offsets[partition] = kgo.NewOffset().AtStart()
	}
	level := kgo.ReadUncommitted()
	if isolation == committed {
		level = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		kgo.SeedBrokers(servers), kgo.FetchIsolationLevel(level),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: offsets}),
		kgo.FetchMaxPartitionBytes(2000), kgo.FetchMaxWait(50*time.Millisecond),
	)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	var found []string
	for {
		wait := limit
		if len(found) >= count {
			wait = quiet
		}
		poll, cancel := context.WithTimeout(context.Background(), wait)
		fetches := client.PollFetches(poll)
		cancel()
		for _, each := range fetches.Errors() {
			if errors.Is(each.Err, context.DeadlineExceeded) && len(found) == count {
				return found, nil
			}
			return nil, each.Err
		}
		fetches.EachRecord(func(record *kgo.Record) {
			var headers []string
			for _, each := range record.Headers {
				headers = append(headers, encoded([]byte(each.Key))+":"+encoded(each.Value))
			}
			timestamp := record.Timestamp.UnixMilli()
			if record.Attrs.TimestampType() < 0 {
				timestamp = -1
			}
			found = append(found, row(
				record.Partition, record.Offset, timestamp, record.Key, record.Value, headers,
			))
		})
	}
}

func readBySarama(
	servers, topic, isolation string, partitions []int32, count int,
) ([]string, error) {
	config := sarama.NewConfig()
	config.Consumer.Fetch.Default = 2000
	config.Consumer.MaxWaitTime = 50 * time.Millisecond
	config.Consumer.Return.Errors = true
	if isolation == committed {
		config.Consumer.IsolationLevel = sarama.ReadCommitted
	}
	consumer, err := sarama.NewConsumer([]string{servers}, config)
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	messages, failures := make(chan *sarama.ConsumerMessage), make(chan error)
	for _, partition := range partitions {
		part, err := consumer.ConsumePartition(topic, partition, sarama.OffsetOldest)
		if err != nil {
			return nil, err
		}
		defer part.AsyncClose()
		go func() {
			for message := range part.Messages() {
				messages <- message
			}
		}()
		go func() {
			for failure := range part.Errors() {
				failures <- failure
			}
		}()
	}
	var found []string
	for {
		wait := limit
		if len(found) >= count {
			wait = quiet
		}
		select {
		case message := <-messages:
			var headers []string
			for _, each := range message.Headers {
				headers = append(headers, encoded(each.Key)+":"+encoded(each.Value))
			}
			timestamp := int64(-1)
			if !message.Timestamp.IsZero() {
				timestamp = message.Timestamp.UnixMilli()
			}
			found = append(found, row(
				message.Partition, message.Offset, timestamp, message.Key, message.Value, headers,
			))
		case failure := <-failures:
			return nil, failure
		case <-time.After(wait):
			if len(found) != count {
				return nil, fmt.Errorf("%d records of %d", len(found), count)
			}
			return found, nil
		}
	}
}
