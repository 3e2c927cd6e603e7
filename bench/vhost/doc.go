// Vhost measures virtio front ends on one and the same back end: ours (package virtio over a vhost-user socket) and DPDK's
// (net_virtio_user), each on DPDK's vhost port (net_vhost).
//
//	make bench                                   every cell, five runs of each front end, one after the other in turns
//	go run ./vhost -runs 3 -cells 'packed rx'    some of it
//
// Front end and back end are two processes on one processor that take turns (dpdk/turn.h): the back end is asked for frames, or to
// take some, and sleeps while the front end is measured. A round is 256 frames of 60 bytes in calls of 32 (-burst). What is taken
// is the CPU time of the front end's thread, less what taking it takes; sixteen rounds are one value, since a driver frees buffers
// every few rounds only. A run is the median of its values; what is printed of a cell is the median of the runs and their range,
// and the ratio of the two front ends with the range that it had from run to run.
//
// Allocating what is sent and freeing what is received is left out, but for "io", where received frames are sent again.
//
// DPDK's part is C (dpdk/), compiled with gcc and pkg-config when the program starts, and run as processes; nothing is linked.
// The method and the figures are in docs/performance.md.
package main
