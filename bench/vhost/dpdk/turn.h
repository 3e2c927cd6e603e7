// What the programs of this directory have in common: the turns that front end and back end take, and a DPDK port of one queue
// pair.
//
// Front end and back end are two processes on one processor. The front end asks for something over a socket (descriptor 3) and
// waits; the back end does it and answers. So only one of them runs at a time, and what is measured is measured while the other
// one sleeps.
#ifndef TURN_H
#define TURN_H

#include <rte_bus.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_ethdev.h>
#include <rte_mbuf.h>

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { TURN_FD = 3 };

// A request of the front end, and its answer.
enum {
	TURN_TAKE = 1, // receive count frames
	TURN_GIVE = 2, // send count frames of 60 bytes
	TURN_SINK = 3, // receive for count milliseconds; answered at once, and once more at the end
	TURN_FLOOD = 4, // send for count milliseconds; answered at once, and once more at the end
};

struct turn {
	uint32_t what;  // in an answer: 0
	uint32_t count; // in an answer: frames
	uint64_t bytes; // in an answer: of these frames, without FCS
};

static inline void die(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, rte_errno ? rte_strerror(rte_errno) : strerror(errno));
	exit(1);
}

// turn_read returns 0 at the end.
static inline int turn_read(struct turn *t)
{
	ssize_t n;
	do
		n = read(TURN_FD, t, sizeof *t);
	while (n < 0 && errno == EINTR);
	if (n != 0 && n != sizeof *t)
		die("reading a turn");
	return n != 0;
}

static inline void turn_write(uint32_t what, uint32_t count, uint64_t bytes)
{
	struct turn t = {what, count, bytes};
	if (write(TURN_FD, &t, sizeof t) != sizeof t)
		die("writing a turn");
}

static inline struct turn turn_ask(uint32_t what, uint32_t count)
{
	struct turn t = {0};
	turn_write(what, count, 0);
	if (!turn_read(&t)) {
		fprintf(stderr, "the back end went away\n");
		exit(1);
	}
	return t;
}

static inline int64_t now_ns(clockid_t clock)
{
	struct timespec t;
	clock_gettime(clock, &t);
	return t.tv_sec * 1000000000LL + t.tv_nsec;
}

enum { RING = 512, FRAME = 60, BURST_MAX = 512 };

// port_start adds a virtual device and starts it with one queue pair.
static inline uint16_t port_start(const char *name, const char *args, struct rte_mempool *pool)
{
	struct rte_eth_conf conf = {0};
	uint16_t port, rx = RING, tx = RING;
	if (rte_eal_hotplug_add("vdev", name, args) != 0)
		die(name);
	if (rte_eth_dev_get_port_by_name(name, &port) != 0 || rte_eth_dev_configure(port, 1, 1, &conf) != 0)
		die("configuring the port");
	if (rte_eth_dev_adjust_nb_rx_tx_desc(port, &rx, &tx) != 0)
		die("number of descriptors");
	if (rte_eth_rx_queue_setup(port, 0, rx, SOCKET_ID_ANY, NULL, pool) != 0 ||
	    rte_eth_tx_queue_setup(port, 0, tx, SOCKET_ID_ANY, NULL) != 0 || rte_eth_dev_start(port) != 0)
		die("starting the port");
	return port;
}

// make allocates n frames. What is in them is whatever was in their buffers.
static inline int make(struct rte_mempool *pool, struct rte_mbuf **m, unsigned n)
{
	if (rte_pktmbuf_alloc_bulk(pool, m, n) != 0)
		return 0;
	for (unsigned i = 0; i < n; i++)
		m[i]->data_len = m[i]->pkt_len = FRAME;
	return 1;
}

#endif
