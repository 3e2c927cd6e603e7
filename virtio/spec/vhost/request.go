package vhost

import (
	"fmt"
	"math/bits"
	"strings"

	"bare.wire/virtio/spec"
)

// Request is what a message of the front end asks for.
type Request uint32

// Requests of the front end. Those that are answered say with what; all others are answered only when they ask for it with
// [FlagNeedReply] and [ProtocolReplyAck] was agreed on.
const (
	GetFeatures         Request = 1  // answered: u64
	SetFeatures         Request = 2  // u64
	SetOwner            Request = 3  // nothing
	ResetOwner          Request = 4  // nothing; deprecated
	SetMemTable         Request = 5  // MemoryTable, and a descriptor for each region
	SetLogBase          Request = 6  // Log, and a descriptor; answered if ProtocolLogShmFD was agreed on
	SetLogFD            Request = 7  // a descriptor
	SetVringNum         Request = 8  // VringState: the size of the queue
	SetVringAddr        Request = 9  // VringAddr
	SetVringBase        Request = 10 // VringState: where the rings go on
	GetVringBase        Request = 11 // VringState; stops the queue; answered: VringState
	SetVringKick        Request = 12 // VringFD, and the descriptor; starts the queue
	SetVringCall        Request = 13 // VringFD, and the descriptor
	SetVringErr         Request = 14 // VringFD, and the descriptor
	GetProtocolFeatures Request = 15 // answered: u64
	SetProtocolFeatures Request = 16 // u64
	GetQueueNum         Request = 17 // answered: u64, the most queues (QEMU: pairs)
	SetVringEnable      Request = 18 // VringState: 0 or 1
	SendRARP            Request = 19 // u64: a MAC address
	NetSetMTU           Request = 20 // u64
	SetBackendReqFD     Request = 21 // a descriptor: a socket for requests of the back end
	IOTLBMessage        Request = 22
	SetVringEndian      Request = 23 // VringState
	GetConfig           Request = 24 // Config; answered: Config, empty if refused
	SetConfig           Request = 25 // Config
	GetInflightFD       Request = 31
	SetInflightFD       Request = 32
	ResetDevice         Request = 34 // nothing
	VringKick           Request = 35 // VringState, ProtocolInbandNotifications
	GetMaxMemSlots      Request = 36 // answered: u64
	AddMemReg           Request = 37 // SingleRegion, and a descriptor
	RemMemReg           Request = 38 // SingleRegion
	SetStatus           Request = 39 // u64: the device status (§2.1 of VIRTIO)
	GetStatus           Request = 40 // answered: u64
)

var requestNames = map[Request]string{
	GetFeatures: "GET_FEATURES", SetFeatures: "SET_FEATURES", SetOwner: "SET_OWNER", ResetOwner: "RESET_OWNER",
	SetMemTable: "SET_MEM_TABLE", SetLogBase: "SET_LOG_BASE", SetLogFD: "SET_LOG_FD", SetVringNum: "SET_VRING_NUM",
	SetVringAddr: "SET_VRING_ADDR", SetVringBase: "SET_VRING_BASE", GetVringBase: "GET_VRING_BASE", SetVringKick: "SET_VRING_KICK",
	SetVringCall: "SET_VRING_CALL", SetVringErr: "SET_VRING_ERR", GetProtocolFeatures: "GET_PROTOCOL_FEATURES",
	SetProtocolFeatures: "SET_PROTOCOL_FEATURES", GetQueueNum: "GET_QUEUE_NUM", SetVringEnable: "SET_VRING_ENABLE",
	SendRARP: "SEND_RARP", NetSetMTU: "NET_SET_MTU", SetBackendReqFD: "SET_BACKEND_REQ_FD", IOTLBMessage: "IOTLB_MSG",
	SetVringEndian: "SET_VRING_ENDIAN", GetConfig: "GET_CONFIG", SetConfig: "SET_CONFIG", GetInflightFD: "GET_INFLIGHT_FD",
	SetInflightFD: "SET_INFLIGHT_FD", ResetDevice: "RESET_DEVICE", VringKick: "VRING_KICK", GetMaxMemSlots: "GET_MAX_MEM_SLOTS",
	AddMemReg: "ADD_MEM_REG", RemMemReg: "REM_MEM_REG", SetStatus: "SET_STATUS", GetStatus: "GET_STATUS",
}

// String is the name of the request: "SET_MEM_TABLE", or "request 77".
func (r Request) String() string {
	if name, ok := requestNames[r]; ok {
		return name
	}
	return fmt.Sprintf("request %d", uint32(r))
}

// Known says whether the request has a name here.
func (r Request) Known() bool { _, ok := requestNames[r]; return ok }

// Answered says whether the request is always answered with a message of its own.
func (r Request) Answered() bool {
	switch r {
	case GetFeatures, GetVringBase, GetProtocolFeatures, GetQueueNum, GetConfig, GetInflightFD, GetMaxMemSlots, GetStatus:
		return true
	}
	return false
}

// FeatureProtocolFeatures is a bit beside the device's own in GET_FEATURES: there are protocol features to be agreed on. With
// it taken, queues begin disabled, and SET_VRING_ENABLE enables them.
const FeatureProtocolFeatures spec.Features = 1 << 30

// FeatureLogAll (bit 26) asks the back end to log what it writes. Nobody here takes it.
const FeatureLogAll spec.Features = 1 << 26

// ProtocolFeatures is a set of features of the protocol itself.
type ProtocolFeatures uint64

// Protocol features.
const (
	ProtocolMQ                  ProtocolFeatures = 1 << 0 // GET_QUEUE_NUM
	ProtocolLogShmFD            ProtocolFeatures = 1 << 1
	ProtocolRARP                ProtocolFeatures = 1 << 2
	ProtocolReplyAck            ProtocolFeatures = 1 << 3 // FlagNeedReply
	ProtocolNetMTU              ProtocolFeatures = 1 << 4 // NET_SET_MTU
	ProtocolBackendReq          ProtocolFeatures = 1 << 5
	ProtocolCrossEndian         ProtocolFeatures = 1 << 6
	ProtocolCryptoSession       ProtocolFeatures = 1 << 7
	ProtocolPageFault           ProtocolFeatures = 1 << 8
	ProtocolConfig              ProtocolFeatures = 1 << 9 // GET_CONFIG, SET_CONFIG
	ProtocolBackendSendFD       ProtocolFeatures = 1 << 10
	ProtocolHostNotifier        ProtocolFeatures = 1 << 11
	ProtocolInflightShmFD       ProtocolFeatures = 1 << 12
	ProtocolResetDevice         ProtocolFeatures = 1 << 13 // RESET_DEVICE
	ProtocolInbandNotifications ProtocolFeatures = 1 << 14
	ProtocolConfigureMemSlots   ProtocolFeatures = 1 << 15 // GET_MAX_MEM_SLOTS, ADD_MEM_REG, REM_MEM_REG
	ProtocolStatus              ProtocolFeatures = 1 << 16 // GET_STATUS, SET_STATUS
)

var protocolNames = []string{
	"MQ", "LOG_SHMFD", "RARP", "REPLY_ACK", "MTU", "BACKEND_REQ", "CROSS_ENDIAN", "CRYPTO_SESSION", "PAGEFAULT", "CONFIG",
	"BACKEND_SEND_FD", "HOST_NOTIFIER", "INFLIGHT_SHMFD", "RESET_DEVICE", "INBAND_NOTIFICATIONS", "CONFIGURE_MEM_SLOTS", "STATUS",
}

// Has says whether all of g are in f.
func (f ProtocolFeatures) Has(g ProtocolFeatures) bool { return f&g == g }

// String lists the names: "MQ,REPLY_ACK"; "none" for none.
func (f ProtocolFeatures) String() string {
	if f == 0 {
		return "none"
	}
	var names []string
	for left := uint64(f); left != 0; left &= left - 1 {
		bit := bits.TrailingZeros64(left)
		if bit < len(protocolNames) {
			names = append(names, protocolNames[bit])
		} else {
			names = append(names, fmt.Sprintf("bit_%d", bit))
		}
	}
	return strings.Join(names, ",")
}
