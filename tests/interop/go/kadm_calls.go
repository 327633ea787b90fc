// The calls of franz-go's admin client, which stands for tools that are written in Go. What each answered, as JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kversion"
)

type calls struct {
	ctx     context.Context
	client  *kgo.Client
	admin   *kadm.Client
	answers map[string]any
}

// What a call answered, or the words of its error.
func (c *calls) note(name string, answer any, err error) {
	if err != nil {
		answer = err.Error()
	}
	c.answers[name] = answer
}

func main() {
	bootstrap, topic, group := os.Args[1], os.Args[2], os.Args[3]
	client, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(bootstrap, ",")...))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := &calls{ctx, client, kadm.NewClient(client), map[string]any{}}
	c.cluster()
	c.topics(topic)
	c.messages(topic)
	c.groups(group, topic)
	c.transactions(topic)
	c.security()
	if err := json.NewEncoder(os.Stdout).Encode(c.answers); err != nil {
		os.Exit(1)
	}
}

func (c *calls) cluster() {
	versions, err := c.admin.ApiVersions(c.ctx)
	guesses := map[string]bool{}
	for _, one := range versions.Sorted() {
		guesses[one.VersionGuess()] = true
		guesses[kversion.FromApiVersionsResponse(one.Raw()).VersionGuess()] = true
	}
	c.note("versionGuesses", keys(guesses), err)

	brokers, err := c.admin.ListBrokers(c.ctx)
	c.note("brokers", brokers.NodeIDs(), err)
	metadata, err := c.admin.Metadata(c.ctx)
	c.note("controllerIsABroker", contains(brokers.NodeIDs(), metadata.Controller), err)
	c.note("clusterId", metadata.Cluster, err)

	configs, err := c.admin.DescribeBrokerConfigs(c.ctx, brokers.NodeIDs()[0])
	names := map[string]bool{}
	for _, config := range configs {
		for _, one := range config.Configs {
			names[one.Key] = true
		}
	}
	c.note("brokerConfigs", keys(names), err)
	resources, err := c.admin.ListConfigResources(c.ctx, kadm.ConfigResourceTopic)
	c.note("configResources", resources.Names(), err)
	folders, err := c.admin.DescribeAllLogDirs(c.ctx, nil)
	folders.Each(func(one kadm.DescribedLogDir) { err = firstOf(err, one.Err) })
	c.note("logDirs", len(folders), err)
}

func (c *calls) topics(topic string) {
	topics, err := c.admin.ListTopicsWithInternal(c.ctx)
	c.note("topics", topics.Names(), firstOf(err, topics.Error()))
	c.note("partitions", len(topics[topic].Partitions), err)
	configs, err := c.admin.DescribeTopicConfigs(c.ctx, topic)
	names := map[string]string{}
	for _, config := range configs {
		for _, one := range config.Configs {
			names[one.Key] = one.MaybeValue()
		}
	}
	c.note("topicConfigs", names, err)

	retention := "7654321"
	created, err := c.admin.CreateTopic(c.ctx, 1, -1, map[string]*string{"retention.ms": &retention}, "made-by-kadm")
	c.note("created", created.NumPartitions, err)
	_, err = c.admin.CreateTopic(c.ctx, 1, -1, nil, "made-by-kadm")
	c.note("createdTwice", nil, err)
	grown, err := c.admin.UpdatePartitions(c.ctx, 3, "made-by-kadm")
	c.note("grown", "", firstOf(err, grown.Error()))
	longer := "8654321"
	altered, err := c.admin.AlterTopicConfigs(c.ctx, []kadm.AlterConfig{{Op: kadm.SetConfig, Name: "retention.ms", Value: &longer}}, "made-by-kadm")
	c.note("altered", len(altered), firstOf(err, altered[0].Err))
	state, err := c.admin.AlterTopicConfigsState(c.ctx, []kadm.AlterConfig{{Name: "retention.ms", Value: &retention}}, "made-by-kadm")
	c.note("alteredState", len(state), firstOf(err, state[0].Err))
	deleted, err := c.admin.DeleteTopics(c.ctx, "made-by-kadm")
	c.note("deleted", "", firstOf(err, deleted.Error()))
}

func (c *calls) messages(topic string) {
	ends, err := c.admin.ListEndOffsets(c.ctx, topic)
	c.note("end", sum(ends), firstOf(err, ends.Error()))
	committed, err := c.admin.ListCommittedOffsets(c.ctx, topic)
	c.note("committedEnd", sum(committed), firstOf(err, committed.Error()))
	starts, err := c.admin.ListStartOffsets(c.ctx, topic)
	c.note("start", sum(starts), firstOf(err, starts.Error()))
	since, err := c.admin.ListOffsetsAfterMilli(c.ctx, 0, topic)
	c.note("since", sum(since), firstOf(err, since.Error()))
	newest, err := c.admin.ListMaxTimestampOffsets(c.ctx, topic)
	c.note("newest", len(newest[topic]), firstOf(err, newest.Error()))
	local, err := c.admin.ListLocalLogStartOffsets(c.ctx, topic)
	c.note("localStart", sum(local), firstOf(err, local.Error()))
}

func (c *calls) groups(group string, topic string) {
	listed, err := c.admin.ListGroups(c.ctx)
	c.note("groups", listed.Groups(), err)
	described, err := c.admin.DescribeGroups(c.ctx, group)
	c.note("groupState", described[group].State, firstOf(err, described.Error()))
	lags, err := c.admin.Lag(c.ctx, group)
	c.note("lag", lags[group].Lag.Total(), firstOf(err, lags.Error()))
	fetched, err := c.admin.FetchOffsets(c.ctx, group)
	c.note("fetched", len(fetched.Offsets()[topic]), firstOf(err, fetched.Error()))

	offsets := kadm.Offsets{}
	offsets.AddOffset(topic, 0, 1, -1)
	offsets.AddOffset(topic, 1, 1, -1)
	c.note("committed", "", c.admin.CommitAllOffsets(c.ctx, "made-by-kadm", offsets))
	first := kadm.TopicsSet{}
	first.Add(topic, 0)
	removed, err := c.admin.DeleteOffsets(c.ctx, "made-by-kadm", first)
	c.note("offsetsDeleted", "", firstOf(err, removed.Error()))
	gone, err := c.admin.DeleteGroup(c.ctx, "made-by-kadm")
	c.note("groupDeleted", "", firstOf(err, gone.Err))
	coordinators := c.admin.FindGroupCoordinators(c.ctx, group)
	c.note("coordinators", len(coordinators), coordinators.Error())
}

func (c *calls) transactions(topic string) {
	listed, err := c.admin.ListTransactions(c.ctx, nil, nil)
	c.note("transactions", listed.TransactionalIDs(), err)
	described, err := c.admin.DescribeTransactions(c.ctx, listed.TransactionalIDs()...)
	states := map[string]string{}
	for _, one := range described {
		states[one.TxnID] = one.State
	}
	c.note("transactionStates", states, err)
	set := kadm.TopicsSet{}
	set.Add(topic, 0)
	producers, err := c.admin.DescribeProducers(c.ctx, set)
	c.note("producers", len(producers), err)
}

func (c *calls) security() {
	all := kadm.NewACLs().AnyResource().ResourcePatternType(kadm.ACLPatternAny).Operations().Allow().Deny().AllowHosts().DenyHosts()
	acls, err := c.admin.DescribeACLs(c.ctx, all)
	for _, one := range acls {
		err = firstOf(err, one.Err)
	}
	c.note("acls", len(acls), err)
	quotas, err := c.admin.DescribeClientQuotas(c.ctx, false, nil)
	c.note("quotas", len(quotas), err)
	scrams, err := c.admin.DescribeUserSCRAMs(c.ctx)
	c.note("scrams", len(scrams), err)
}

func sum(offsets kadm.ListedOffsets) int64 {
	var total int64
	offsets.Each(func(one kadm.ListedOffset) { total += one.Offset })
	return total
}

func firstOf(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

func keys(set map[string]bool) []string {
	found := []string{}
	for one := range set {
		found = append(found, one)
	}
	return found
}

func contains(all []int32, one int32) bool {
	for _, each := range all {
		if each == one {
			return true
		}
	}
	return false
}
