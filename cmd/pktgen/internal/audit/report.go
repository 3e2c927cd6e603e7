package audit

import (
	"encoding/json"
	"fmt"
)

// Report audits a report (the JSON of a run) against the captures in the files tx and rx and, when it is known, what the
// wire did. It returns the fields that differ.
func Report(report []byte, tx, rx string, link *Link) ([]string, error) {
	var r struct {
		Args      Args
		Intervals []Interval
		Devices   []struct {
			LinkBPS int64 `json:"link_bps"`
		}
		Streams []struct {
			Latency struct{ HDR, Source string } `json:"latency_ns"`
		}
	}
	if err := json.Unmarshal(report, &r); err != nil {
		return nil, fmt.Errorf("the report is not that of a run: %w", err)
	}
	if len(r.Streams) != 1 || len(r.Devices) != 2 {
		return nil, fmt.Errorf("%d streams between %d devices; only one between two can be audited", len(r.Streams), len(r.Devices))
	}
	in := Input{Args: r.Args, Intervals: r.Intervals, Link: link, Histogram: r.Streams[0].Latency.HDR}
	in.Args.LinkBPS = r.Devices[0].LinkBPS
	in.Args.Latency = r.Streams[0].Latency.Source != "off"
	var err error
	if in.Tx, err = ReadCapture(tx); err != nil {
		return nil, err
	}
	if in.Rx, err = ReadCapture(rx); err != nil {
		return nil, err
	}
	values, err := Audit(in)
	if err != nil {
		return nil, err
	}
	return values.Differences(report)
}
