// Package schema holds the JSON Schema of what pktgen prints, for whoever reads its results by program.
package schema

import _ "embed"

// Run describes the output of "pktgen run -o json" (schema "pktgen.run/1", JSON Schema 2020-12).
//
//go:embed pktgen.run-1.json
var Run []byte

// Replay describes the output of "pktgen replay -o json" (schema "pktgen.replay/1").
//
//go:embed pktgen.replay-1.json
var Replay []byte

// Devices describes the output of "pktgen devices -o json" and "pktgen devices show -o json" (schema "pktgen.devices/1").
//
//go:embed pktgen.devices-1.json
var Devices []byte

// Doctor describes the output of "pktgen doctor -o json" (schema "pktgen.doctor/1").
//
//go:embed pktgen.doctor-1.json
var Doctor []byte
