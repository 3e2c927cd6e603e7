// Package report is what a run of pktgen says: the result as a Go value, and its forms as text, JSON and NDJSON.
//
// The engine fills a [Run] and [Interval] values; a [Sink] writes them. The JSON is described by the schema in
// cmd/pktgen/schema, and its field names do not change within "pktgen.run/1": counts and nanoseconds are integers, rates are
// numbers, nothing is a formatted string. Bytes are with FCS where the name says l2.
package report

// SchemaName is in every result.
const SchemaName = "pktgen.run/1"

// Run is the result of one run.
type Run struct {
	Schema    string     `json:"schema"`
	Version   string     `json:"version"` // of pktgen
	About     string     `json:"about"`   // what the devices are: "in-process pair, link 10 Gb/s"
	Host      Host       `json:"host"`
	Args      Args       `json:"args"`
	Devices   []Device   `json:"devices"`
	Streams   []Stream   `json:"streams"`
	Intervals []Interval `json:"intervals"`
	Valid     bool       `json:"valid"`
	Reasons   []string   `json:"reasons"` // why it is not valid
	Checks    []Check    `json:"checks"`
	Complete  bool       `json:"complete"` // false: interrupted, or a device failed
	Error     string     `json:"error,omitempty"`
	ElapsedNS int64      `json:"elapsed_ns"` // from the first frame due to the end of the drain
}

// Host is the machine; it says how far a measurement in software can be trusted.
type Host struct {
	CPU         string `json:"cpu"`
	CPUs        int    `json:"cpus"`
	Kernel      string `json:"kernel"`
	Go          string `json:"go"`
	Arch        string `json:"arch"`
	Virtualised bool   `json:"virtualised"`
	Clocksource string `json:"clocksource"`
}

// Args is what was asked for, defaults included.
type Args struct {
	Rate       string   `json:"rate"`
	DurationNS int64    `json:"duration_ns"` // 0: until interrupted or count
	Count      uint64   `json:"count"`       // 0: no limit
	Size       int      `json:"size"`        // bytes with FCS
	Burst      int      `json:"burst"`
	Proto      string   `json:"proto"`
	Src        string   `json:"src"`
	Dst        string   `json:"dst"`
	Sport      int      `json:"sport"`
	Dport      int      `json:"dport"`
	SrcMAC     string   `json:"src_mac"`
	DstMAC     string   `json:"dst_mac"`
	Flows      int      `json:"flows"`
	VLAN       []string `json:"vlan"`
	Seed       uint64   `json:"seed"`
	DrainNS    int64    `json:"drain_ns"`
	BudgetNS   int64    `json:"catch_up_budget_ns"`
	Virtual    bool     `json:"virtual_clock"`
}

// Device is one port in use.
type Device struct {
	Role     string   `json:"role"` // "tx", "rx", "both"
	URI      string   `json:"uri"`
	Driver   string   `json:"driver"`
	Name     string   `json:"name"`
	MAC      string   `json:"mac"`
	LinkBPS  uint64   `json:"link_bps"`
	NUMA     int      `json:"numa"`
	Software bool     `json:"software"`
	Counters Counters `json:"counters"`
}

// Counters are the device's own totals; bytes without FCS.
type Counters struct {
	RxPackets uint64 `json:"rx_packets"`
	RxBytes   uint64 `json:"rx_bytes"`
	TxPackets uint64 `json:"tx_packets"`
	TxBytes   uint64 `json:"tx_bytes"`
	RxMissed  uint64 `json:"rx_missed"`
	RxNoDesc  uint64 `json:"rx_no_desc"`
	RxErrors  uint64 `json:"rx_errors"`
	RxNoBuf   uint64 `json:"rx_no_buf"`
	TxErrors  uint64 `json:"tx_errors"`
}

// Stream is one stream's result.
type Stream struct {
	ID      int     `json:"id"`
	Tx      Traffic `json:"tx"`
	Rx      Traffic `json:"rx"`
	Loss    Loss    `json:"loss"`
	Latency Latency `json:"latency_ns"`
	Pacing  Pacing  `json:"pacing"`
}

// Traffic counts frames of the stream and their bytes with FCS. Received counts every copy that came.
type Traffic struct {
	Packets uint64 `json:"packets"`
	BytesL2 uint64 `json:"bytes_l2"`
}

// Loss is the account of package account.
type Loss struct {
	Lost       int64   `json:"lost"` // negative: more came than was sent
	Ratio      float64 `json:"ratio"`
	InFlight   uint64  `json:"in_flight"`
	Unique     uint64  `json:"unique"`
	Reordered  uint64  `json:"reordered"`
	MaxExtent  uint64  `json:"max_extent"`
	Late       uint64  `json:"late_beyond_window"`
	Duplicates uint64  `json:"duplicates"`
	Corrupt    uint64  `json:"corrupt"`
	Foreign    uint64  `json:"foreign"`  // bore another run's or stream's mark
	Unsigned   uint64  `json:"unsigned"` // bore no mark
}

// Latency is in ns.
type Latency struct {
	Min         int64  `json:"min"`
	P50         int64  `json:"p50"`
	P90         int64  `json:"p90"`
	P99         int64  `json:"p99"`
	P999        int64  `json:"p999"`
	P9999       int64  `json:"p9999"`
	Max         int64  `json:"max"`
	Mean        int64  `json:"mean"`
	StdDev      int64  `json:"stddev"`
	Count       uint64 `json:"count"`
	Overflow    uint64 `json:"overflow"` // above 10 s
	Negative    uint64 `json:"negative"` // received before sent: the clocks disagree
	Jitter      int64  `json:"jitter_rfc3550"`
	PDV         int64  `json:"pdv_p999"` // RFC 8219 §7.3.1: p99.9 - min
	Granularity int64  `json:"granularity_ns"`
	Source      string `json:"source"` // "software, per burst"; "off"
	HDR         string `json:"hdr"`    // HDR histogram, V2 compressed, base64
}

// Pacing is how well the schedule was kept.
type Pacing struct {
	TargetPPS    *float64 `json:"target_pps"` // null: max
	AchievedPPS  float64  `json:"achieved_pps"`
	Skipped      uint64   `json:"skipped"`
	Unsent       uint64   `json:"unsent"`
	RingFull     uint64   `json:"ring_full"`
	LateP50      int64    `json:"late_ns_p50"`
	LateP99      int64    `json:"late_ns_p99"`
	LateMax      int64    `json:"late_ns_max"`
	LongestBurst uint64   `json:"longest_burst"`
}

// Interval is what happened between two status lines; rates are by the measured time between them.
type Interval struct {
	StartNS    int64   `json:"start_ns"` // since the start of the run
	EndNS      int64   `json:"end_ns"`
	TxPackets  uint64  `json:"tx_packets"`
	RxPackets  uint64  `json:"rx_packets"`
	TxPPS      float64 `json:"tx_pps"`
	RxPPS      float64 `json:"rx_pps"`
	TxL1BPS    float64 `json:"tx_l1_bps"`
	Missing    int64   `json:"missing"` // left out of the sequence so far, less what came late after all
	Reordered  uint64  `json:"reordered"`
	Duplicates uint64  `json:"duplicates"`
	Skipped    uint64  `json:"skipped"`
	P50        int64   `json:"latency_ns_p50"`
	P99        int64   `json:"latency_ns_p99"`
}

// Check is a limit that the user set and what became of it.
type Check struct {
	Name  string  `json:"name"`
	Limit string  `json:"limit"`
	Value float64 `json:"value"`
	OK    bool    `json:"ok"`
}

// Failed reports whether a check failed.
func (r *Run) Failed() bool {
	for _, c := range r.Checks {
		if !c.OK {
			return true
		}
	}
	return false
}
