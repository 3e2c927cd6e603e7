// Command cmd audits the report of a run of pktgen on a virtual clock:
//
//	pktgen run -o json --pcap-tx tx.pcap --pcap-rx rx.pcap 'sim:?clock=virtual&loss=1e-3' > report.json
//	go run ./cmd/pktgen/internal/audit/cmd report.json tx.pcap rx.pcap [link.json]
//
// It prints the fields that differ from what the captures say, and ends with 1 if there are any, 2 if it could not tell.
// link.json, if there is one, is what the wire did (audit.Link).
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"bare.wire/cmd/pktgen/internal/audit"
)

func main() {
	differences, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "audit:", err)
		os.Exit(2)
	}
	for _, d := range differences {
		fmt.Println(d)
	}
	if len(differences) > 0 {
		os.Exit(1)
	}
	fmt.Println("every field is what the captures say")
}

func run(args []string) ([]string, error) {
	if len(args) < 3 || len(args) > 4 {
		return nil, fmt.Errorf("usage: audit REPORT.json TX.pcap RX.pcap [LINK.json]")
	}
	report, err := os.ReadFile(args[0])
	if err != nil {
		return nil, err
	}
	var link *audit.Link
	if len(args) == 4 {
		b, err := os.ReadFile(args[3])
		if err != nil {
			return nil, err
		}
		link = &audit.Link{}
		if err := json.Unmarshal(b, link); err != nil {
			return nil, fmt.Errorf("%s: %w", args[3], err)
		}
	}
	return audit.Report(report, args[1], args[2], link)
}
