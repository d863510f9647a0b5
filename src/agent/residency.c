/* residency.c - whether all blocks of a launch that would be resident together stay so under a variant: blocks that run together may wait for
 * each other, in a cooperative launch by promise, in others because it works.
 */
#include "agent/agent.h"

/* Blocks of this shape an SM holds of the original and of the variant. The last answers are kept in
 * one word: bit 63, threads from bit 40, shared bytes from bit 16, the two answers from bits 8 and
 * 0. */
static bool resident_blocks(
	struct variant *v, uint32_t threads, size_t shared, uint32_t *original, uint32_t *variant)
{
	bool keep = threads < 1 << 20 && shared < 1 << 24;
	uint64_t question = (uint64_t)1 << 63 | (uint64_t)threads << 40 | (uint64_t)shared << 16,
		 word = atomic_load(&v->fit);
	if (keep && word >> 16 == question >> 16) {
		*original = word >> 8 & 0xff;
		*variant = word & 0xff;
		return true;
	}
	int a = 0, b = 0;
	if (REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(
		    &a, v->original, (int)threads, shared) != CUDA_SUCCESS ||
		REAL(cuOccupancyMaxActiveBlocksPerMultiprocessor)(
			&b, v->function, (int)threads, shared) != CUDA_SUCCESS)
		return false;
	*original = (uint32_t)a;
	*variant = (uint32_t)b;
	if (keep && a < 256 && b < 256)
		atomic_store(&v->fit, question | (uint64_t)a << 8 | (uint64_t)b);
	return true;
}

bool residency_fits(
	struct variant *v, uint64_t blocks, uint32_t threads, size_t shared, bool cooperative)
{
	uint32_t original, variant;
	if (!resident_blocks(v, threads, shared, &original, &variant))
		return false;
	uint64_t sms = v->context->sms;
	return variant >= original || blocks <= variant * sms ||
	       (!cooperative && blocks > original * sms);
}
