/* live_state.h - what live.c, bell.c and inside.c share: a context's part of programs in running kernels. All of it is used under context.copying, with
 * the context current. */
#ifndef EGPU_AGENT_LIVE_STATE_H
#define EGPU_AGENT_LIVE_STATE_H

#include "agent/agent.h"
#include "live/live.h"

enum { REST_AFTER_NS = 3000000 /* from a change on: if a closed list is not left by then, others rest */ };

/* A list on the device, from the first word that leads to it until nobody is inside. */
struct list {
	uint64_t links;		/* 0: the place is free */
	uint32_t words;		/* that lead to it */
	uint32_t number;
	uint32_t inside;	/* lanes, when last looked */
	uint64_t closed_ns;	/* since when it is closed; 0: it is open */
	uint64_t empty_ns;	/* since when nobody is seen inside; 0: not yet */
};

struct live {
	CUdeviceptr value;      /* of egpu_live: words, then code */
	uint64_t code_bytes, code_used; /* for lists and programs */
	CUdeviceptr pool;
	uint64_t pool_bytes, pool_used;
	CUstream bell_stream;
	CUmodule bell_module;
	CUfunction bell;
	uint32_t number;        /* of the bell */
	uint32_t rings;         /* that have yet to be heard everywhere; 0: settled */
	uint64_t written_ns, rung_ns, sent_ns; /* sent: the doorbell kernel; 0: not since the last ringing */
	uint32_t heard[LIVE_SMS];
	uint64_t links;         /* that are published, a bit each */
	atomic_bool full;       /* a program waits for room */
	_Atomic uint64_t settled; /* generation of the session up to which what was detached is gone */
	uint64_t generation;    /* of the session, when last published; 0: never */
	uint32_t n_kernels;     /* of the session at that time */
	uint64_t armed;         /* links that are said to be armed */
	uint64_t ran;           /* links that were published, and are not gone: whatever they have counted has yet to be taken */
	struct native *native;  /* NULL: programs are interpreted */
	uint64_t coded_links;   /* that are said to be machine code */
	bool again;             /* lists have code now that had none */
	CUdeviceptr program[SESSION_MAX_LINKS];
	struct list lists[LIVE_LISTS];
	uint32_t lists_number;  /* of the last one */
	uint64_t rest_ns;	/* since when others rest; 0: they do not */
	uint64_t rest_at, rest_wait; /* when they do again if a closed list is not left by then, and how long that is from the last time */
	struct live_line lines[LIVE_SMS]; /* what is read or written of one list */
	uint8_t list[LIVE_POINTS][LIVE_KERNELS];   /* that a word leads to, and 1; 0: none */
	uint64_t shown[LIVE_POINTS][LIVE_KERNELS]; /* links in it */
	bool coded[LIVE_POINTS][LIVE_KERNELS];	   /* which has code */
	bool had[LIVE_KERNELS];			   /* a program, at any point */
};

/* -- live.c: copies on a stream of our own, which waits for nobody -- */
bool live_put(struct context *c, CUdeviceptr at, const void *from, size_t bytes);
/* Until what was put is there. */
bool live_finished(struct context *c);
/* Multiprocessors, as many as the value has lines for. */
uint32_t live_sms(const struct context *c);

/* -- bell.c -- */
int bell_load(struct live *l, uint32_t cc, struct diag *d);
/* The doorbell kernel, to all multiprocessors that have room for it. */
void bell_send(struct context *c);
/* Raises the number. */
bool bell_ring(struct context *c);
/* Multiprocessors that have not heard the last ringing. */
uint32_t bell_deaf(struct context *c);

/* -- inside.c -- */
/* Device address of a list's struct live_inside. */
CUdeviceptr list_inside(const struct live *l, uint32_t list);
/* The number that makes a list open; 0 closes it. Who comes in before the time (of the device) rests; 0: nobody. */
bool list_open(struct context *c, uint32_t list, uint32_t number, uint64_t rest_until);
/* Whether no word leads to it any more, and somebody may be inside. */
bool list_is_old(const struct list *x);
/* Closes those that no word leads to any more; the words have been written. */
bool lists_close(struct context *c);
/* One look at who is inside those. */
void lists_look(struct context *c);
/* Where somebody stays inside, others rest, for a moment. */
void lists_give_turns(struct context *c);
/* The links that lanes may be inside of although no word leads to them; since: the first of them, CLOCK_MONOTONIC. */
uint64_t lists_held(const struct live *l, uint64_t *since);

#endif
