// Writes one record and reads it back with franz-go, over the security that its arguments name.
package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

func fail(what string, err error) {
	if err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", what, err)
		os.Exit(1)
	}
}

func mechanism(name, user, password, token string) sasl.Mechanism {
	switch name {
	case "PLAIN":
		return plain.Auth{User: user, Pass: password}.AsMechanism()
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: password}.AsSha256Mechanism()
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: password}.AsSha512Mechanism()
	case "OAUTHBEARER":
		return oauth.Auth{Token: token}.AsMechanism()
	}
	return nil
}

func main() {
	bootstrap := flag.String("bootstrap", "", "host:port")
	name := flag.String("mechanism", "", "SASL mechanism; empty: none")
	user := flag.String("user", "", "who")
	ca := flag.String("ca", "", "authority's certificate; empty: no TLS")
	certificate := flag.String("certificate", "", "own certificate")
	key := flag.String("key", "", "its key")
	value := flag.String("value", "", "what to write")
	flag.Parse()
	secret := os.Getenv("CLIENT_SECRET") // a password or a token: not for process lists
	options := []kgo.Opt{kgo.SeedBrokers(*bootstrap), kgo.RequestRetries(2)}
	if *ca != "" {
		pem, err := os.ReadFile(*ca)
		fail("authority", err)
		pool := x509.NewCertPool()
		pool.AppendCertsFromPEM(pem)
		config := &tls.Config{RootCAs: pool}
		if *certificate != "" {
			pair, err := tls.LoadX509KeyPair(*certificate, *key)
			fail("certificate", err)
			config.Certificates = []tls.Certificate{pair}
		}
		options = append(options, kgo.DialTLSConfig(config))
	}
	if *name != "" {
		options = append(options, kgo.SASL(mechanism(*name, *user, secret, secret)))
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	writer, err := kgo.NewClient(options...)
	fail("client", err)
	defer writer.Close()
	fail("login", writer.Ping(ctx))
	record := &kgo.Record{Topic: "orders", Value: []byte(*value)}
	fail("write", writer.ProduceSync(ctx, record).FirstErr())
	from := map[string]map[int32]kgo.Offset{"orders": {record.Partition: kgo.NewOffset().At(record.Offset)}}
	reader, err := kgo.NewClient(append(options, kgo.ConsumePartitions(from))...)
	fail("client", err)
	defer reader.Close()
	fetched := reader.PollFetches(ctx)
	for _, problem := range fetched.Errors() {
		fail("read", problem.Err)
	}
	fmt.Println(string(fetched.Records()[0].Value))
}
