package report

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Sink writes a run as it goes. Start comes once, before the first frame, with what is known by then; End once, last.
type Sink interface {
	Start(*Run) error
	Interval(Interval) error
	End(*Run) error
}

// formats are the names that NewSink knows.
var formats = []string{"text", "json", "ndjson"}

// NewSink returns a sink of the given format that writes to w. Text and NDJSON come line by line, JSON at the end.
func NewSink(format string, w io.Writer) (Sink, error) {
	switch format {
	case "text":
		return &textSink{w: w}, nil
	case "json":
		return jsonSink{w}, nil
	case "ndjson":
		return &eventSink{json.NewEncoder(w)}, nil
	}
	return nil, fmt.Errorf("output format %q: unknown; write %s", format, strings.Join(formats, " or "))
}

// jsonSink writes one object, indented, at the end.
type jsonSink struct{ w io.Writer }

func (jsonSink) Start(*Run) error        { return nil }
func (jsonSink) Interval(Interval) error { return nil }
func (s jsonSink) End(r *Run) error      { return WriteJSON(s.w, r) }

// WriteJSON writes the run as one indented JSON object.
func WriteJSON(w io.Writer, r *Run) error {
	e := json.NewEncoder(w)
	e.SetIndent("", "  ")
	if err := e.Encode(r); err != nil {
		return fmt.Errorf("write the result: %w", err)
	}
	return nil
}

// Event is one line of NDJSON: "start" has the run without results, "interval" an interval, "end" the whole run.
type Event struct {
	Event    string    `json:"event"`
	Run      *Run      `json:"run,omitempty"`
	Interval *Interval `json:"interval,omitempty"`
}

type eventSink struct{ e *json.Encoder }

func (s *eventSink) Start(r *Run) error        { return s.emit(Event{Event: "start", Run: r}) }
func (s *eventSink) Interval(i Interval) error { return s.emit(Event{Event: "interval", Interval: &i}) }
func (s *eventSink) End(r *Run) error          { return s.emit(Event{Event: "end", Run: r}) }

func (s *eventSink) emit(e Event) error {
	if err := s.e.Encode(e); err != nil {
		return fmt.Errorf("write the %s event: %w", e.Event, err)
	}
	return nil
}
