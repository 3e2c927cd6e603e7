package testpmd

import (
	"encoding/hex"
	"fmt"
	"net"
	"regexp"
	"strconv"
	"strings"
)

// PortStats are the figures of `show port stats N`. Bytes are as the poll-mode driver counts them: ixgbe's come from the
// card's queue counters.
type PortStats struct {
	RxPackets, RxMissed, RxBytes, RxErrors, RxNoMbuf uint64
	TxPackets, TxErrors, TxBytes                     uint64
}

// figures is any `Name: number` of an answer.
var figures = regexp.MustCompile(`([A-Za-z][A-Za-z0-9_-]*): +([0-9]+)\b`)

// numbers collects the figures of an answer by name; the first of a name counts.
func numbers(text string) map[string]uint64 {
	all := make(map[string]uint64)
	for _, m := range figures.FindAllStringSubmatch(text, -1) {
		if v, err := strconv.ParseUint(m[2], 10, 64); err == nil {
			if _, known := all[m[1]]; !known {
				all[m[1]] = v
			}
		}
	}
	return all
}

// fill puts the named figures where they belong, and says which are missing.
func fill(what, text string, fields map[string]*uint64) error {
	all := numbers(text)
	for name, to := range fields {
		v, ok := all[name]
		if !ok {
			return fmt.Errorf("%s has no %s: %q", what, name, tail(text))
		}
		*to = v
	}
	return nil
}

// ParsePortStats reads the answer to `show port stats N`, of one port.
func ParsePortStats(text string) (s PortStats, err error) {
	err = fill("show port stats", text, map[string]*uint64{
		"RX-packets": &s.RxPackets, "RX-missed": &s.RxMissed, "RX-bytes": &s.RxBytes, "RX-errors": &s.RxErrors,
		"RX-nombuf": &s.RxNoMbuf, "TX-packets": &s.TxPackets, "TX-errors": &s.TxErrors, "TX-bytes": &s.TxBytes,
	})
	return s, err
}

// xstat is a line of `show port xstats N`.
var xstat = regexp.MustCompile(`(?m)^([a-z][a-z0-9_]+): ([0-9]+)$`)

// ParseXStats reads the answer to `show port xstats N`, of one port: the poll-mode driver's extended statistics by name.
func ParseXStats(text string) (map[string]uint64, error) {
	all := make(map[string]uint64)
	for _, m := range xstat.FindAllStringSubmatch(text, -1) {
		v, err := strconv.ParseUint(m[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("show port xstats: %s: %w", m[1], err)
		}
		if _, twice := all[m[1]]; twice {
			return nil, fmt.Errorf("show port xstats has %s twice: ask for one port", m[1])
		}
		all[m[1]] = v
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("show port xstats has no figures: %q", tail(text))
	}
	return all, nil
}

// Forward are the figures of a forwarding engine, by `stop` or `show fwd stats all`, for one port. The bad checksums are
// counted by the csum engine alone.
type Forward struct {
	RxPackets, RxDropped, TxPackets, TxDropped uint64
	BadIPSum, BadL4Sum                         uint64
}

// forwardPort is the head of a port's block; the block ends at the next line of dashes or pluses.
var forwardPort = regexp.MustCompile(`(?ms)^ *-+ Forward statistics for port ([0-9]+) +-+$(.*?)^ *-+$`)

// ParseForward reads the answer to `stop` or `show fwd stats all`: the figures by port.
func ParseForward(text string) (map[int]Forward, error) {
	all := make(map[int]Forward)
	for _, m := range forwardPort.FindAllStringSubmatch(text, -1) {
		port, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		var f Forward
		if err := fill("forward statistics", m[2], map[string]*uint64{
			"RX-packets": &f.RxPackets, "RX-dropped": &f.RxDropped, "TX-packets": &f.TxPackets, "TX-dropped": &f.TxDropped,
		}); err != nil {
			return nil, err
		}
		bad := numbers(m[2])
		f.BadIPSum, f.BadL4Sum = bad["Bad-ipcsum"], bad["Bad-l4csum"]
		all[port] = f
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("no forward statistics: %q", tail(text))
	}
	return all, nil
}

// Info is what `show port info N` says and a judge asks for.
type Info struct {
	MAC         net.HardwareAddr
	Driver      string
	Up          bool
	SpeedMbps   uint64 // 0 without a link
	MTU         uint64
	Promiscuous bool
	AllMulti    bool
	RxQueues    uint64 // in use
	RETA        uint64 // entries of the redirection table
	HashKey     uint64 // bytes
}

// infoLine is `Name: value`.
var infoLine = regexp.MustCompile(`(?m)^([A-Z][A-Za-z() ]+): (.*)$`)

// ParseInfo reads the answer to `show port info N`.
func ParseInfo(text string) (i Info, err error) {
	lines := make(map[string]string)
	for _, m := range infoLine.FindAllStringSubmatch(text, -1) {
		lines[m[1]] = strings.TrimSpace(m[2])
	}
	if i.MAC, err = net.ParseMAC(lines["MAC address"]); err != nil {
		return i, fmt.Errorf("show port info: %w: %q", err, tail(text))
	}
	i.Driver = lines["Driver name"]
	i.Up = lines["Link status"] == "up"
	i.Promiscuous = lines["Promiscuous mode"] == "enabled"
	i.AllMulti = lines["Allmulticast mode"] == "enabled"
	speed, unit, _ := strings.Cut(lines["Link speed"], " ")
	if i.SpeedMbps, err = strconv.ParseUint(speed, 10, 64); err != nil {
		i.SpeedMbps, err = 0, nil // "None", "Unknown"
	}
	if unit == "Gbps" {
		i.SpeedMbps *= 1000
	}
	for name, to := range map[string]*uint64{
		"MTU": &i.MTU, "Current number of RX queues": &i.RxQueues, "Redirection table size": &i.RETA, "Hash key size in bytes": &i.HashKey,
	} {
		if v, ok := lines[name]; ok {
			if *to, err = strconv.ParseUint(v, 10, 64); err != nil {
				return i, fmt.Errorf("show port info: %s: %w", name, err)
			}
		}
	}
	return i, nil
}

// hashKey is the key in the answer to `show port N rss-hash key`, in hexadecimal digits.
var hashKey = regexp.MustCompile(`(?i)RSS key:\s*([0-9a-f]+)`)

// ParseHashKey reads the RSS key out of `show port N rss-hash key`.
func ParseHashKey(text string) ([]byte, error) {
	m := hashKey.FindStringSubmatch(text)
	if m == nil {
		return nil, fmt.Errorf("no RSS key: %q", tail(text))
	}
	return hex.DecodeString(m[1])
}

// retaEntry is a line of `show port N rss reta …`.
var retaEntry = regexp.MustCompile(`RSS RETA configuration: hash index=([0-9]+), queue=([0-9]+)`)

// ParseRETA reads the redirection table out of `show port N rss reta SIZE (MASKS)`: the queue of each index.
func ParseRETA(text string) (map[int]int, error) {
	table := make(map[int]int)
	for _, m := range retaEntry.FindAllStringSubmatch(text, -1) {
		index, err := strconv.Atoi(m[1])
		if err != nil {
			return nil, err
		}
		if table[index], err = strconv.Atoi(m[2]); err != nil {
			return nil, err
		}
	}
	if len(table) == 0 {
		return nil, fmt.Errorf("no redirection table: %q", tail(text))
	}
	return table, nil
}
