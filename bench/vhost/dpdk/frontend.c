// frontend EAL-OPTIONS -- SOCKET DEVICE-ARGUMENTS MODE BURST ROUNDS FRAMES: DPDK's virtio-user port, measured. A round moves FRAMES
// frames in calls of BURST; MODE is tx, rx or io (every frame received is sent again). Allocating and freeing of buffers that the
// driver does not do itself is outside of what is measured, but for io.
//
// Prints a line: frames, bytes, those that the back end counted, then the nanoseconds of each round, of the thread's CPU clock,
// less those of an empty round. With MODE sink or flood, ROUNDS is milliseconds of sending or receiving while the back end runs on
// another processor, and the line ends with frames per second.
#include "turn.h"

static struct rte_mempool *pool;
static uint16_t port;
static struct rte_mbuf *m[BURST_MAX];
static uint64_t frames, bytes, peer_frames, peer_bytes;

static int cmp(const void *a, const void *b)
{
	int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
	return (x > y) - (x < y);
}

// empty is what the clock itself takes.
static int64_t empty(void)
{
	int64_t v[1001];
	for (unsigned i = 0; i < RTE_DIM(v); i++) {
		int64_t t = now_ns(CLOCK_THREAD_CPUTIME_ID);
		v[i] = now_ns(CLOCK_THREAD_CPUTIME_ID) - t;
	}
	qsort(v, RTE_DIM(v), sizeof *v, cmp);
	return v[RTE_DIM(v) / 2];
}

enum { IDLE_CALLS = 1000000 };

static int64_t send_round(unsigned n, unsigned burst)
{
	unsigned sent = 0, idle = 0;
	if (!make(pool, m, n))
		die("the front end has no buffers");
	int64_t t = now_ns(CLOCK_THREAD_CPUTIME_ID);
	while (sent < n && idle++ < IDLE_CALLS)
		sent += rte_eth_tx_burst(port, 0, m + sent, RTE_MIN(burst, n - sent));
	t = now_ns(CLOCK_THREAD_CPUTIME_ID) - t;
	rte_pktmbuf_free_bulk(m + sent, n - sent);
	struct turn a = turn_ask(TURN_TAKE, sent);
	frames += sent;
	bytes += (uint64_t)sent * FRAME;
	peer_frames += a.count;
	peer_bytes += a.bytes;
	return t;
}

static int64_t receive_round(unsigned n, unsigned burst)
{
	struct turn a = turn_ask(TURN_GIVE, n);
	unsigned got = 0, idle = 0;
	int64_t t = now_ns(CLOCK_THREAD_CPUTIME_ID);
	while (got < a.count && idle++ < IDLE_CALLS)
		got += rte_eth_rx_burst(port, 0, m + got, RTE_MIN(burst, a.count - got));
	t = now_ns(CLOCK_THREAD_CPUTIME_ID) - t;
	for (unsigned i = 0; i < got; i++)
		bytes += m[i]->pkt_len;
	rte_pktmbuf_free_bulk(m, got);
	frames += got;
	peer_frames += a.count;
	peer_bytes += a.bytes;
	return t;
}

static int64_t forward_round(unsigned n, unsigned burst)
{
	struct turn a = turn_ask(TURN_GIVE, n);
	unsigned got = 0, idle = 0;
	int64_t t = now_ns(CLOCK_THREAD_CPUTIME_ID);
	while (got < a.count && idle++ < IDLE_CALLS) {
		unsigned k = rte_eth_rx_burst(port, 0, m, RTE_MIN(burst, a.count - got));
		unsigned sent = 0;
		while (sent < k && idle++ < IDLE_CALLS)
			sent += rte_eth_tx_burst(port, 0, m + sent, k - sent);
		got += k;
	}
	t = now_ns(CLOCK_THREAD_CPUTIME_ID) - t;
	struct turn b = turn_ask(TURN_TAKE, got);
	frames += got;
	bytes += a.bytes;
	peer_frames += b.count;
	peer_bytes += b.bytes;
	return t;
}

// free_run sends or receives for a time while the back end does the opposite, and returns frames per second.
static double free_run(int sending, unsigned ms, unsigned burst)
{
	turn_ask(sending ? TURN_SINK : TURN_FLOOD, ms);
	int64_t start = now_ns(CLOCK_MONOTONIC), end = start + ms * 1000000LL;
	while (now_ns(CLOCK_MONOTONIC) < end) {
		for (unsigned i = 0; i < 64; i++) {
			unsigned n;
			if (sending) {
				if (!make(pool, m, burst))
					die("the front end has no buffers");
				n = rte_eth_tx_burst(port, 0, m, burst);
				rte_pktmbuf_free_bulk(m + n, burst - n);
			} else {
				n = rte_eth_rx_burst(port, 0, m, burst);
				rte_pktmbuf_free_bulk(m, n);
			}
			frames += n;
		}
	}
	struct turn t;
	if (!turn_read(&t))
		die("the back end");
	peer_frames = t.count;
	peer_bytes = t.bytes;
	bytes = frames * FRAME;
	return (double)(sending ? peer_frames : frames) * 1e3 / ms;
}

int main(int argc, char **argv)
{
	int used = rte_eal_init(argc, argv);
	if (used < 0 || argc - used != 7)
		die("frontend EAL-OPTIONS -- SOCKET DEVICE-ARGUMENTS MODE BURST ROUNDS FRAMES");
	argv += used;
	const char *mode = argv[3];
	unsigned burst = atoi(argv[4]), rounds = atoi(argv[5]), n = atoi(argv[6]);
	if (burst < 1 || burst > BURST_MAX || n < 1 || n > BURST_MAX || rounds < 1)
		die("burst or frames out of range");
	char args[512];
	snprintf(args, sizeof args, "path=%s,queues=1,queue_size=%d,mac=02:00:00:00:00:01%s", argv[1], RING, argv[2]);
	// A cache that a round fits into: what is freed while the clock runs then goes no further.
	pool = rte_pktmbuf_pool_create("frontend", 4095, 512, 0, RTE_MBUF_DEFAULT_BUF_SIZE, SOCKET_ID_ANY);
	if (pool == NULL)
		die("the front end's pool");
	port = port_start("net_virtio_user0", args, pool);

	struct rte_eth_link link = {0};
	for (unsigned i = 0; i < 500 && !link.link_status; i++) {
		rte_eth_link_get_nowait(port, &link);
		usleep(10000);
	}
	usleep(300000); // the back end has yet to see its queues

	if (!strcmp(mode, "sink") || !strcmp(mode, "flood")) {
		double rate = free_run(!strcmp(mode, "sink"), rounds, burst);
		printf("result %lu %lu %lu %lu %.0f\n", frames, bytes, peer_frames, peer_bytes, rate);
	} else {
		int64_t *ns = calloc(rounds, sizeof *ns), none = empty();
		int64_t (*round)(unsigned, unsigned) = !strcmp(mode, "tx") ? send_round : !strcmp(mode, "rx") ? receive_round : forward_round;
		for (unsigned i = 0; i < 20; i++)
			round(n, burst);
		frames = bytes = peer_frames = peer_bytes = 0;
		for (unsigned i = 0; i < rounds; i++)
			ns[i] = round(n, burst) - none;
		printf("result %lu %lu %lu %lu", frames, bytes, peer_frames, peer_bytes);
		for (unsigned i = 0; i < rounds; i++)
			printf(" %ld", ns[i]);
		printf("\n");
	}
	fflush(stdout);
	rte_eth_dev_stop(port);
	rte_eth_dev_close(port);
	rte_eal_cleanup();
	return 0;
}
