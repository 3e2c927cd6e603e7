// backend EAL-OPTIONS -- SOCKET: DPDK's vhost port, as the back end that every front end is measured against. It does what it is
// asked for over descriptor 3 (turn.h), in one thread, and ends when the other end of that is closed. Prints "ready" when a front
// end may connect.
#include "turn.h"

static struct rte_mempool *pool;
static uint16_t port;
static struct rte_mbuf *m[BURST_MAX];

// Enough that a frame which does not come is told apart from one that is late.
enum { IDLE_ROUNDS = 100000000 };

static uint32_t take(uint32_t count, uint64_t *bytes)
{
	uint32_t got = 0;
	for (unsigned idle = 0; got < count && idle < IDLE_ROUNDS; idle++) {
		unsigned n = rte_eth_rx_burst(port, 0, m, RTE_MIN(count - got, 32u));
		if (n == 0)
			continue;
		for (unsigned i = 0; i < n; i++)
			*bytes += m[i]->pkt_len;
		rte_pktmbuf_free_bulk(m, n);
		got += n;
		idle = 0;
	}
	return got;
}

static uint32_t give(uint32_t count)
{
	uint32_t sent = 0;
	for (unsigned idle = 0; sent < count && idle < IDLE_ROUNDS; idle++) {
		unsigned want = RTE_MIN(count - sent, 32u);
		if (!make(pool, m, want))
			die("the back end has no buffers");
		unsigned n = rte_eth_tx_burst(port, 0, m, want);
		if (n < want)
			rte_pktmbuf_free_bulk(m + n, want - n);
		if (n > 0)
			idle = 0;
		sent += n;
	}
	return sent;
}

// spin does one of the two for a time, as fast as it can.
static uint32_t spin(uint32_t what, uint32_t ms, uint64_t *bytes)
{
	int64_t end = now_ns(CLOCK_MONOTONIC) + ms * 1000000LL;
	uint32_t done = 0;
	while (now_ns(CLOCK_MONOTONIC) < end) {
		for (unsigned i = 0; i < 64; i++) {
			unsigned n;
			if (what == TURN_SINK) {
				n = rte_eth_rx_burst(port, 0, m, 32);
				for (unsigned j = 0; j < n; j++)
					*bytes += m[j]->pkt_len;
				rte_pktmbuf_free_bulk(m, n);
			} else {
				if (!make(pool, m, 32))
					die("the back end has no buffers");
				n = rte_eth_tx_burst(port, 0, m, 32);
				rte_pktmbuf_free_bulk(m + n, 32 - n);
			}
			done += n;
		}
	}
	return done;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used != 2)
		die("backend EAL-OPTIONS -- SOCKET");
	char args[256];
	snprintf(args, sizeof args, "iface=%s,queues=1", argv[used + 1]);
	pool = rte_pktmbuf_pool_create("backend", 4095, 256, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL)
		die("the back end's pool");
	port = port_start("net_vhost0", args, pool);
	printf("ready\n");
	fflush(stdout);

	struct turn t;
	while (turn_read(&t)) {
		uint64_t bytes = 0;
		uint32_t n = 0;
		switch (t.what) {
		case TURN_TAKE:
			n = take(t.count, &bytes);
			break;
		case TURN_GIVE:
			n = give(t.count);
			bytes = (uint64_t)n * FRAME;
			break;
		case TURN_SINK:
		case TURN_FLOOD:
			turn_write(0, 0, 0);
			n = spin(t.what, t.count, &bytes);
			if (t.what == TURN_FLOOD)
				bytes = (uint64_t)n * FRAME;
			break;
		}
		turn_write(0, n, bytes);
	}
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	rte_eal_cleanup();
	return 0;
}
