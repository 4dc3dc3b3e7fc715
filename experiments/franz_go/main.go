// The load of Kafka's ProducerPerformance for franz-go's producer: its options, and its output.
package main

import (
	"context"
	"crypto/rand"
	"flag"
	"fmt"
	"os"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func main() {
	var (
		bootstrap  = flag.String("bootstrap-server", "", "host:port, joined by commas")
		topic      = flag.String("topic", "", "the topic")
		records    = flag.Int("num-records", 0, "how many records are sent")
		size       = flag.Int("record-size", 512, "bytes of a record's value")
		throughput = flag.Float64("throughput", -1, "records per second; -1: as fast as possible")
		warmup     = flag.Int("warmup-records", 0, "records that the steady state leaves out")
		interval   = flag.Int("reporting-interval", 5000, "milliseconds between lines on the way")
		properties = flag.String("command-property", "", "name=value, joined by commas")
	)
	flag.Parse()
	options, err := clientOptions(*bootstrap, *topic, *properties)
	if err != nil {
		fail(err)
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		fail(err)
	}
	defer client.Close()
	if err := client.Ping(context.Background()); err != nil {
		fail(err)
	}
	load := load{size: *size, samples: make([]sample, 0, *records)}
	stop := load.reportEvery(time.Duration(*interval) * time.Millisecond)
	load.run(client, *records, *throughput)
	stop()
	if load.failure != nil {
		fmt.Fprintln(os.Stderr, load.failure)
	}
	fmt.Println(load.line(load.samples, "") + load.percentiles(load.samples))
	if *warmup > 0 && *warmup < *records {
		var steady []sample
		for _, s := range load.samples {
			if s.number >= *warmup {
				steady = append(steady, s)
			}
		}
		fmt.Println(load.line(steady, " steady state") + load.percentiles(steady))
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}

// clientOptions translates Java's names. Everything else keeps franz-go's default: acks=all,
// idempotence with five requests in flight per broker, and its adaptive partitioner
// (UniformBytesPartitioner). Only its compression, Snappy, is off: the other clients compress nothing.
func clientOptions(bootstrap, topic, properties string) ([]kgo.Opt, error) {
	options := []kgo.Opt{
		kgo.SeedBrokers(strings.Split(bootstrap, ",")...),
		kgo.DefaultProduceTopic(topic),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
	}
	for _, property := range strings.Split(properties, ",") {
		name, value, found := strings.Cut(property, "=")
		if !found {
			continue
		}
		number, err := strconv.Atoi(value)
		switch name {
		case "client.id":
			options, err = append(options, kgo.ClientID(value)), nil
		case "linger.ms":
			options = append(options, kgo.ProducerLinger(time.Duration(number)*time.Millisecond))
		case "batch.size":
			options = append(options, kgo.ProducerBatchMaxBytes(int32(number)))
		default:
			err = fmt.Errorf("franz-go has no option for %s here", name)
		}
		if err != nil {
			return nil, err
		}
	}
	return options, nil
}

// sample is an acknowledged record: its number, when it was sent, and its latency.
type sample struct {
	number  int
	sent    time.Time
	latency time.Duration
}

type load struct {
	size    int
	mutex   sync.Mutex
	samples []sample
	failure error
}

func (l *load) run(client *kgo.Client, records int, throughput float64) {
	value := make([]byte, l.size)
	rand.Read(value)
	var waiting sync.WaitGroup
	start := time.Now()
	for number := 0; number < records; number++ {
		if throughput > 0 {
			due := start.Add(time.Duration(float64(number) / throughput * float64(time.Second)))
			// As in Java's tool: records that are due within 2 ms are sent together.
			if wait := time.Until(due); wait > 2*time.Millisecond {
				time.Sleep(wait)
			}
		}
		sent := time.Now()
		waiting.Add(1)
		client.Produce(context.Background(), &kgo.Record{Value: value}, func(_ *kgo.Record, err error) {
			latency := time.Since(sent)
			l.mutex.Lock()
			if err != nil {
				l.failure = err
			} else {
				l.samples = append(l.samples, sample{number, sent, latency})
			}
			l.mutex.Unlock()
			waiting.Done()
		})
	}
	waiting.Wait()
}

// reportEvery prints a line about the records that were acknowledged since the line before.
func (l *load) reportEvery(interval time.Duration) (stop func()) {
	ticker, done := time.NewTicker(interval), make(chan struct{})
	go func() {
		last, before := 0, time.Now()
		for {
			select {
			case <-done:
				return
			case now := <-ticker.C:
				l.mutex.Lock()
				fresh := l.samples[last:]
				l.mutex.Unlock()
				last += len(fresh)
				if len(fresh) > 0 {
					fmt.Println(strings.TrimSuffix(summary(fresh, "", now.Sub(before), l.size), ", ") + ".")
				}
				before = now
			}
		}
	}()
	return func() { ticker.Stop(); done <- struct{}{} }
}

// line is about a whole run, from the first record sent to the last one acknowledged.
func (l *load) line(samples []sample, what string) string {
	var first, last time.Time
	for _, s := range samples {
		if first.IsZero() || s.sent.Before(first) {
			first = s.sent
		}
		if done := s.sent.Add(s.latency); done.After(last) {
			last = done
		}
	}
	return summary(samples, what, last.Sub(first), l.size)
}

func summary(samples []sample, what string, took time.Duration, size int) string {
	var sum, most time.Duration
	for _, s := range samples {
		sum, most = sum+s.latency, max(most, s.latency)
	}
	count := float64(len(samples))
	rate := count / max(took.Seconds(), 1e-9)
	return fmt.Sprintf("%d%s records sent, %f records/sec (%.2f MB/sec), %.2f ms avg latency, %.2f ms max latency, ",
		len(samples), what, rate, rate*float64(size)/(1<<20), ms(sum)/max(count, 1), ms(most))
}

func (l *load) percentiles(samples []sample) string {
	latencies := make([]float64, len(samples))
	for place, s := range samples {
		latencies[place] = ms(s.latency)
	}
	sort.Float64s(latencies)
	at := func(share float64) int {
		if len(latencies) == 0 {
			return 0
		}
		return int(latencies[min(len(latencies)-1, int(share*float64(len(latencies))))])
	}
	return fmt.Sprintf("%d ms 50th, %d ms 95th, %d ms 99th, %d ms 99.9th.", at(.5), at(.95), at(.99), at(.999))
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
