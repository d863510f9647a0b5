/* blackbox.c - the last launches of this process, and the first device fault it was told of: kept in
 * the session, so that they are readable when the context, or the process, is gone. */
#include <string.h>

#include "agent/agent.h"

/* Errors that end a context: what the device did, not what a call asked for. */
static bool is_fault(CUresult r)
{
	switch (r) {
	case CUDA_ERROR_ECC_UNCORRECTABLE:
	case CUDA_ERROR_CONTAINED:
	case CUDA_ERROR_ILLEGAL_ADDRESS:
	case CUDA_ERROR_LAUNCH_TIMEOUT:
	case CUDA_ERROR_ASSERT:
	case CUDA_ERROR_HARDWARE_STACK_ERROR:
	case CUDA_ERROR_ILLEGAL_INSTRUCTION:
	case CUDA_ERROR_MISALIGNED_ADDRESS:
	case CUDA_ERROR_INVALID_ADDRESS_SPACE:
	case CUDA_ERROR_INVALID_PC:
	case CUDA_ERROR_LAUNCH_FAILED:
		return true;
	default:
		return false;
	}
}

#define BEING_WRITTEN UINT64_MAX /* no launch's number */

void blackbox_launch(const struct kernel *k, const CUlaunchConfig *c, bool variant)
{
	if (!agent.row)
		return;
	struct session_blackbox *b = &agent.row->box;
	uint64_t n = __atomic_fetch_add(&b->launches, 1, __ATOMIC_RELAXED);
	struct session_launch *l = &b->last[n % SESSION_LAST_LAUNCHES];
	/* A launch that came as many launches later may be at it: one of them is enough. */
	if (__atomic_exchange_n(&l->number, BEING_WRITTEN, __ATOMIC_ACQUIRE) == BEING_WRITTEN)
		return;
	l->kernel = k->row;
	l->stream = stream_number(c->hStream);
	l->variant = variant;
	l->grid[0] = c->gridDimX;
	l->grid[1] = c->gridDimY;
	l->grid[2] = c->gridDimZ;
	l->block[0] = c->blockDimX;
	l->block[1] = c->blockDimY;
	l->block[2] = c->blockDimZ;
	__atomic_store_n(&l->number, n + 1, __ATOMIC_RELEASE);
}

uint64_t blackbox_launches(void)
{
	return agent.row ? __atomic_load_n(&agent.row->box.launches, __ATOMIC_RELAXED) : 0;
}

void blackbox_done(uint64_t launches)
{
	const struct context *first = atomic_load(&agent.contexts);
	/* Of several contexts one was synchronised, and launches do not say whose they are. */
	if (agent.row && first && !first->next)
		__atomic_store_n(&agent.row->box.done, launches, __ATOMIC_RELAXED);
}

void blackbox_result(const char *call, CUresult r)
{
	uint32_t none = 0;
	if (!is_fault(r) || !agent_on() || !agent.row)
		return;
	struct session_blackbox *b = &agent.row->box;
	if (!__atomic_compare_exchange_n(&b->fault, &none, (uint32_t)r, false, __ATOMIC_ACQ_REL,
		    __ATOMIC_RELAXED))
		return;
	b->fault_ns = now_ns();
	b->launches_then = blackbox_launches();
	strncpy(b->call, call, sizeof(b->call) - 1);
	agent_log("device fault %d seen by %s", (int)r, call);
}
