package link_test

import (
	"net/url"
	"reflect"
	"strings"
	"testing"
	"time"

	"bare.wire/sim/link"
)

func TestQueries(t *testing.T) {
	us := time.Microsecond
	for query, want := range map[string]link.Config{
		"": {},
		"rate=10G&delay=5us&loss=1e-4&queue=512&seed=1": {Rate: 10e9, Delay: 5 * us, Loss: 1e-4, Queue: 512, Seed: 1},
		"rate=2.5Gbps&jitter=1ms&overtake=true":         {Rate: 25e8, Jitter: time.Millisecond, Overtake: true},
		"rate=100Mbit/s&overtake":                       {Rate: 1e8, Overtake: true},
		"rate=0&loss=0.5%25":                            {Loss: 0.005},
		"rate=1000000&record=1":                         {Rate: 1e6, Record: true},
		"ge=0.001,0.1":                                  {Gilbert: &link.GilbertElliott{P: 0.001, R: 0.1, LossBad: 1}},
		"ge=1%25,0.1,0.8,1e-6":                          {Gilbert: &link.GilbertElliott{P: 0.01, R: 0.1, LossBad: 0.8, LossGood: 1e-6}},
		"reorder=1e-3&reorder-every=2&reorder-by=3":     {Reorder: 1e-3, ReorderEvery: 2, ReorderBy: 3},
		"reorder-delay=50us&hold=2ms":                   {ReorderDelay: 50 * us, Hold: 2 * time.Millisecond},
		"dup=1&dup-every=4&dup-copies=5&dup-by=6":       {Duplicate: 1, DuplicateEvery: 4, DuplicateCopies: 5, DuplicateBy: 6},
		"corrupt=1e-6&corrupt-keep-fcs=true":            {Corrupt: 1e-6, CorruptKeepFCS: true},
		"flap=10s,200ms":                                {Flap: link.Flap{First: 10 * time.Second, Every: 10 * time.Second, Down: 200 * time.Millisecond}},
		"delays=0s:90,40us:10":                          {Delays: []link.WeightedDelay{{Delay: 0, Weight: 90}, {Delay: 40 * us, Weight: 10}}},
		"seed=0xffffffffffffffff":                       {Seed: 1<<64 - 1},
		"ba.loss=1&rate=1G&loss=0.1&ba.queue=5": {Rate: 1e9, Loss: 0.1,
			BToA: &link.Config{Rate: 1e9, Loss: 1, Queue: 5}},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		got, err := link.ParseConfig(q)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: %+v, %v; want %+v", query, got, err, want)
		}
	}
}

func TestWrongQueriesSayWhatIsWrong(t *testing.T) {
	for query, want := range map[string][]string{
		"rate=fast":             {"rate", `"fast"`, "10G"},
		"rate=10X":              {"rate", `"10X"`},
		"rate=1e30":             {"rate", "1000T"},
		"rate=NaN":              {"rate"},
		"rate=-1":               {"rate"},
		"rate=12":               {"rate", "1k"},
		"loss=1.5":              {"loss", `"1.5"`, "1e-4"},
		"loss=NaN":              {"loss"},
		"loss=-0.1":             {"loss"},
		"delay=5":               {"delay", `"5"`, "unit"},
		"delay=-5us":            {"delay"},
		"delay=9000h":           {"delay", "24h"},
		"queue=99999999":        {"queue", "16777215"},
		"queue=-1":              {"queue"},
		"los=1":                 {`"los"`, `did you mean "loss"`},
		"ab.los=1":              {`"ab.los"`, `did you mean "loss"`},
		"clocks=virtual":        {`"clocks"`, "known are rate, queue"},
		"loss=1&loss=0":         {"loss", "2 times"},
		"ab.seed=1":             {"ab.seed", "write seed"},
		"ge=0.1":                {"ge", "two to four"},
		"ge=1,2":                {"ge"},
		"ge=1,1,1,1,1":          {"ge"},
		"flap=1s":               {"flap", "comma"},
		"flap=1s,2s":            {"flap"},
		"delays=5us":            {"delays", "WEIGHT"},
		"delays=5us:0":          {"Delays", "weight"},
		"overtake=perhaps":      {"overtake", "true or false"},
		"seed=x":                {"seed"},
		"dup-copies=5000":       {"DuplicateCopies", "1000"},
		"rate=fast&loss=2":      {"rate", "loss"},
		"ba.dup-copies=5000":    {"BToA.DuplicateCopies"},
		strings.Repeat("x", 99): {"xxx..."},
	} {
		q, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		_, err = link.ParseConfig(q)
		if err == nil {
			t.Errorf("%s: no error", query)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %q does not contain %q", query, err, part)
			}
		}
	}
}

func TestWrongConfigsAreRefused(t *testing.T) {
	for name, cfg := range map[string]link.Config{
		"Loss":             {Loss: 2},
		"Gilbert.P":        {Gilbert: &link.GilbertElliott{P: -1}},
		"Rate":             {Rate: 1},
		"Delay":            {Delay: -1},
		"Flap":             {Flap: link.Flap{Every: 5, Down: 5}},
		"RecordLimit":      {RecordLimit: -1},
		"AToB.Queue":       {AToB: &link.Config{Queue: -1}},
		"BToA.AToB":        {BToA: &link.Config{AToB: &link.Config{}}},
		"DuplicateCopies":  {DuplicateCopies: -1},
		"Delays is 25h0m0": {Delays: []link.WeightedDelay{{Delay: 25 * time.Hour, Weight: 1}}},
	} {
		if _, err := link.New(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: error %v", name, err)
		}
	}
}

func TestEveryExampleParses(t *testing.T) {
	usage := link.Usage()
	for _, key := range link.Keys() {
		_, rest, ok := strings.Cut(usage, key+" ")
		line, _, _ := strings.Cut(rest, "\n")
		_, examples, ok2 := strings.Cut(line, "(")
		if !ok || !ok2 {
			t.Fatalf("usage does not explain %s", key)
		}
		first, _, _ := strings.Cut(strings.TrimSuffix(examples, ")"), " or ")
		first, _, _ = strings.Cut(first, ", ")
		if _, err := link.ParseConfig(url.Values{key: {first}}); err != nil {
			t.Errorf("%s=%s: %v", key, first, err)
		}
	}
}

func FuzzParseConfig(f *testing.F) {
	for _, s := range []string{"rate=10G&delay=5us&loss=1e-4&queue=512&seed=1", "ge=1%25,0.1,0.8,1e-6&ab.rate=0", "delays=0s:90,40us:10",
		"flap=10s,200ms&overtake", "rate=1e999", "loss=%25", "ab.=1", "rate=bps"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		q, err := url.ParseQuery(s)
		if err != nil {
			return
		}
		cfg, err := link.ParseConfig(q)
		if err != nil {
			if len(err.Error()) > 600*(len(q)+1) {
				t.Errorf("an error of %d bytes for %d parameters", len(err.Error()), len(q))
			}
			return
		}
		w, err := link.New(cfg)
		if err != nil {
			t.Fatalf("%q parses to what New refuses: %v", s, err)
		}
		for i := range int64(20) {
			w.A().Transmit(numbered(uint64(i), 60), i*100)
			w.B().Receive(i * 100)
		}
		for range 100_000 {
			if _, ok := w.B().Receive(1 << 62); !ok {
				break
			}
		}
		if c := w.Counts(link.AToB); c.Offered+c.Copies != c.Delivered+c.Lost() || c.InFlight != 0 {
			t.Errorf("%q: %+v", s, c)
		}
	})
}
