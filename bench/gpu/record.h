/* record.h - what the hand-written recordings of kernels.cu write to, shared by both sides. */
#ifndef EGPU_BENCH_RECORD_H
#define EGPU_BENCH_RECORD_H

enum {
	RECORD_SMS = 256,      /* replicas of counters and rings */
	RECORD_COUNTERS = 64,  /* of one multiprocessor: 512 bytes, lines of its own */
	RECORD_SLOTS = 4096,   /* of the hash table */
	RECORD_KEYS = 1000,
};

struct record_slot {
	unsigned long long key; /* key + 1; 0: free */
	unsigned long long value;
};

/* By value, the last parameter of each recording kernel. */
struct record {
	unsigned long long *counters; /* [RECORD_SMS][RECORD_COUNTERS] */
	unsigned long long *heads;    /* [RECORD_SMS][16]: bytes reserved in the shard; [1]: records dropped */
	unsigned char *ring;	      /* RECORD_SMS shards */
	unsigned long long shard_bytes;
	struct record_slot *slots; /* RECORD_SLOTS */
};

/* What a record holds. */
struct record_access {
	unsigned long long address; /* of the lane; of the elected lane in a warp's record */
	unsigned int site, mask;    /* mask: bytes in a lane's record */
};

#endif
