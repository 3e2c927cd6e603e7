// Package calls has a test in a guest call its other half on the host: a question and an answer of any types go over guest.Ask as JSON.
//
//	Ask(question) ── guest.Ask, guest.Machine.Answer ──▶ Serve's function(question)
package calls

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"bare.wire/test/guest"
)

// reply is what goes back.
type reply[A any] struct {
	Fault  string `json:",omitempty"`
	Answer A
}

// Serve makes a guest.Machine's Answer of a function. Its error comes out of Ask, with the answer as far as there is one.
func Serve[Q, A any](f func(Q) (A, error)) func(text string) string {
	return func(text string) string {
		var r reply[A]
		var q Q
		err := json.Unmarshal([]byte(text), &q)
		if err == nil {
			r.Answer, err = f(q)
		}
		if err != nil {
			r.Fault = err.Error()
		}
		b, err := json.Marshal(r)
		if err != nil {
			b, _ = json.Marshal(reply[struct{}]{Fault: err.Error()}) // a string has no error
		}
		return string(b)
	}
}

// Ask puts a question to the host, from the guest.
func Ask[A, Q any](ctx context.Context, q Q) (a A, err error) {
	text, err := json.Marshal(q)
	if err != nil {
		return a, err
	}
	got, err := guest.Ask(ctx, string(text))
	if err != nil {
		return a, err
	}
	return decode[A](got)
}

func decode[A any](text string) (A, error) {
	var r reply[A]
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return r.Answer, fmt.Errorf("the host's answer %q: %w", text, err)
	}
	if r.Fault != "" {
		return r.Answer, errors.New(r.Fault)
	}
	return r.Answer, nil
}
