// Sends a round of messages, one for each key, for each line it reads.
package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const keys = 24

func main() {
	client, err := kgo.NewClient(
		kgo.SeedBrokers(strings.Split(os.Args[1], ",")...),
		kgo.DefaultProduceTopic(os.Args[2]),
		kgo.MetadataMaxAge(time.Second),
		kgo.MetadataMinAge(100*time.Millisecond),
	)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		turn := lines.Text()
		var records []*kgo.Record
		for key := 0; key < keys; key++ {
			records = append(records, &kgo.Record{
				Key:   []byte(fmt.Sprintf("key-%d", key)),
				Value: []byte(fmt.Sprintf("%d:%s", key, turn)),
			})
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		err := client.ProduceSync(ctx, records...).FirstErr()
		cancel()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Println("sent", turn)
	}
}
