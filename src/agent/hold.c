/* hold.c - a device that is never idle by itself: launches are held back for a moment.
 *
 * What waits for an idle moment (variants to load, what was detached to unload) waits for ever where
 * threads always have work queued. After PENDING_NS the loading side may hold new launches at the gate
 * while what runs ends, for HOLD_NS at most, and loads what is compiled already. Kernels that wait for
 * launches which are held get them when that time is over, and the next hold comes later by twice the
 * time: so a kernel that does not end costs the program HOLD_NS in MAX_BACKOFF_NS at worst.
 *
 * Nobody is held where it cannot help: during a capture, with work that cannot be asked about, when
 * nobody launches, and while the stream whose work did not end last time has not ended it since.
 */
#include "agent/agent.h"

enum { POLL_US = 20 };

#define PENDING_NS 50000000ull
#define HOLD_NS 3000000ull
#define MAX_BACKOFF_NS 2000000000ull

bool hold_due(void)
{
	struct hold *h = &agent.hold;
	uint64_t now = now_ns(), n = blackbox_launches();
	if (!h->since_ns) {
		h->since_ns = now;
		h->next_ns = now + PENDING_NS;
		h->backoff_ns = PENDING_NS;
		h->launches = n;
		return false;
	}
	if (now < h->next_ns || n == h->launches || !stream_can_drain() || stream_still_busy(h->busy, h->busy_uses))
		return false;
	return true;
}

/* The gate's users have left and what they started has ended. */
static bool drain(uint64_t until, const char **why)
{
	if (!gate_hold(&agent.gate, until))
		return false;
	while (!stream_idle(why)) {
		if (now_ns() > until) {
			gate_open(&agent.gate);
			return false;
		}
		nap_us(POLL_US);
	}
	return true;
}

bool hold_until_idle(const char **why)
{
	struct hold *h = &agent.hold;
	h->begun_ns = now_ns();
	if (drain(h->begun_ns + HOLD_NS, why))
		return true;
	*why = "what runs does not end within the 3 ms for which launches may be held back";
	h->busy = stream_busy(&h->busy_uses);
	hold_end(false);
	return false;
}

static void count(uint64_t ns)
{
	struct session_agent *row = agent.row;
	if (!row)
		return;
	__atomic_fetch_add(&row->holds, 1, __ATOMIC_RELAXED);
	__atomic_fetch_add(&row->held_ns, ns, __ATOMIC_RELAXED);
	if (ns > row->held_max_ns)
		__atomic_store_n(&row->held_max_ns, ns, __ATOMIC_RELAXED);
}

void hold_end(bool done)
{
	struct hold *h = &agent.hold;
	uint64_t now = now_ns();
	if (h->begun_ns) {
		count(now - h->begun_ns);
		agent_log("launches were held for %.2f ms%s", (double)(now - h->begun_ns) / 1e6,
			done ? "" : " in vain");
	}
	h->begun_ns = 0;
	h->launches = blackbox_launches();
	if (done) {
		h->since_ns = 0;
		h->busy = NULL;
		return;
	}
	h->next_ns = now + h->backoff_ns;
	h->backoff_ns = h->backoff_ns < MAX_BACKOFF_NS / 2 ? h->backoff_ns * 2 : MAX_BACKOFF_NS;
}
