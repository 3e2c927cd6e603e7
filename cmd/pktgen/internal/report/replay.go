package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// ReplaySchema is in every result of a replay. The JSON is described by the schema in cmd/pktgen/schema.
const ReplaySchema = "pktgen.replay/1"

// Replay is the result of one replay. Everything adds up:
//
//	file.packets = not_sent.too_short + .too_long + .not_ethernet + .unsent + tx.packets
//	tx.packets   = tx.pause + tx.mac_control + missing + (rx.packets − rx.mac_control)
type Replay struct {
	Schema    string           `json:"schema"`
	Version   string           `json:"version"` // of pktgen
	About     string           `json:"about"`
	Host      Host             `json:"host"`
	Args      ReplayArgs       `json:"args"`
	Devices   []Device         `json:"devices"`
	File      ReplayFile       `json:"file"`
	Tx        ReplayTx         `json:"tx"`
	NotSent   NotSent          `json:"not_sent"`
	Rx        ReplayRx         `json:"rx"`
	Missing   int64            `json:"missing"` // sent, could have come, did not; negative: more came than was sent
	Pacing    ReplayPacing     `json:"pacing"`
	Intervals []ReplayInterval `json:"intervals"`
	Valid     bool             `json:"valid"`
	Reasons   []string         `json:"reasons"` // why it is not valid
	Checks    []Check          `json:"checks"`
	Complete  bool             `json:"complete"` // false: interrupted, or a device or the file failed
	Error     string           `json:"error,omitempty"`
	ElapsedNS int64            `json:"elapsed_ns"` // from the first frame due to the end of the drain
}

// ReplayArgs is what was asked for, defaults included.
type ReplayArgs struct {
	File     string `json:"file"`
	Timing   string `json:"timing"` // original, x2, or the rate
	Loops    uint64 `json:"loops"`  // 0: until interrupted
	MaxGapNS int64  `json:"max_gap_ns"`
	Burst    int    `json:"burst"`
	DrainNS  int64  `json:"drain_ns"`
	BudgetNS int64  `json:"late_budget_ns"`
	Virtual  bool   `json:"virtual_clock"`
}

// ReplayFile is what was found in the file, all passes together.
type ReplayFile struct {
	Format     string `json:"format"` // pcap, pcapng
	Compressed bool   `json:"compressed"`
	Packets    uint64 `json:"packets"`
	Passes     uint64 `json:"passes"`          // that reached the end of the file
	Cut        uint64 `json:"cut"`             // captured in part: what was captured is what is sent
	Backwards  uint64 `json:"backwards"`       // stamped lower than one before it: sent at once
	Unstamped  uint64 `json:"unstamped"`       // without a stamp: sent at once
	Shortened  uint64 `json:"shortened"`       // silences before packets that were shortened to max_gap_ns
	SpanNS     int64  `json:"span_ns"`         // from the first packet to the last of the latest pass, by the stamps
	Error      string `json:"error,omitempty"` // what is wrong with the file; what was before it was sent
}

// ReplayTx is what was sent.
type ReplayTx struct {
	Packets    uint64 `json:"packets"`
	BytesL2    uint64 `json:"bytes_l2"`    // with padding and FCS
	Padded     uint64 `json:"padded"`      // 14 to 59 bytes, padded to 60 by the card
	Pause      uint64 `json:"pause"`       // pause frames: the receiving MAC takes them
	MACControl uint64 `json:"mac_control"` // other frames of ethertype 8808: likewise
}

// NotSent are the packets of the file that were not sent, by reason.
type NotSent struct {
	TooShort    uint64 `json:"too_short"`    // below 14 bytes: no Ethernet header
	TooLong     uint64 `json:"too_long"`     // above what the cards take
	NotEthernet uint64 `json:"not_ethernet"` // another link type
	Unsent      uint64 `json:"unsent"`       // read, and the replay ended first
}

// ReplayRx is what came back. MAC control frames that a device did deliver are counted among the packets and apart.
type ReplayRx struct {
	Packets    uint64 `json:"packets"`
	BytesL2    uint64 `json:"bytes_l2"`
	MACControl uint64 `json:"mac_control"`
}

// ReplayPacing is how well the times were kept.
type ReplayPacing struct {
	LateP50      int64  `json:"late_ns_p50"`
	LateP99      int64  `json:"late_ns_p99"`
	LateMax      int64  `json:"late_ns_max"`
	TooLate      uint64 `json:"too_late"` // frames sent more than the budget late
	RingFull     uint64 `json:"ring_full"`
	LongestBurst uint64 `json:"longest_burst"` // frames sent with one doorbell
}

// ReplayInterval is what happened between two status lines.
type ReplayInterval struct {
	StartNS   int64   `json:"start_ns"` // since the start
	EndNS     int64   `json:"end_ns"`
	TxPackets uint64  `json:"tx_packets"`
	RxPackets uint64  `json:"rx_packets"`
	TxPPS     float64 `json:"tx_pps"`
	RxPPS     float64 `json:"rx_pps"`
	TxL1BPS   float64 `json:"tx_l1_bps"`
	LateMax   int64   `json:"late_ns_max"`
	NotSent   uint64  `json:"not_sent"`
	Pass      uint64  `json:"pass"`
	FileShare float64 `json:"file_share"` // of the file that has been read in this pass, 0 to 1; 0 when its size is unknown
}

// Failed reports whether a check failed.
func (r *Replay) Failed() bool {
	for _, c := range r.Checks {
		if !c.OK {
			return true
		}
	}
	return false
}

// ReplaySink writes a replay as it goes, like Sink.
type ReplaySink interface {
	Start(*Replay) error
	Interval(ReplayInterval) error
	End(*Replay) error
}

// NewReplaySink returns a sink of the given format that writes to w; the formats are those of NewSink.
func NewReplaySink(format string, w io.Writer) (ReplaySink, error) {
	switch format {
	case "text":
		return &replayText{text: textSink{w: w}}, nil
	case "json":
		return replayJSON{w}, nil
	case "ndjson":
		return replayEvents{json.NewEncoder(w)}, nil
	}
	return nil, fmt.Errorf("output format %q: unknown; write %s", format, strings.Join(formats, " or "))
}

type replayJSON struct{ w io.Writer }

func (replayJSON) Start(*Replay) error           { return nil }
func (replayJSON) Interval(ReplayInterval) error { return nil }
func (s replayJSON) End(r *Replay) error         { return WriteReplayJSON(s.w, r) }

// WriteReplayJSON writes the result as one indented JSON object.
func WriteReplayJSON(w io.Writer, r *Replay) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// ReplayEvent is one line of NDJSON: "start" has the replay without results, "interval" an interval, "end" the whole.
type ReplayEvent struct {
	Event    string          `json:"event"`
	Replay   *Replay         `json:"replay,omitempty"`
	Interval *ReplayInterval `json:"interval,omitempty"`
}

type replayEvents struct{ e *json.Encoder }

func (s replayEvents) Start(r *Replay) error { return s.emit(ReplayEvent{Event: "start", Replay: r}) }
func (s replayEvents) Interval(i ReplayInterval) error {
	return s.emit(ReplayEvent{Event: "interval", Interval: &i})
}
func (s replayEvents) End(r *Replay) error { return s.emit(ReplayEvent{Event: "end", Replay: r}) }

func (s replayEvents) emit(e ReplayEvent) error {
	if err := s.e.Encode(e); err != nil {
		return fmt.Errorf("write the %s event: %w", e.Event, err)
	}
	return nil
}
