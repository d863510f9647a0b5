/* resolve.c - the functions we export, made from cuda/calls.h and the classes in hooks.h, and what
 * cuGetProcAddress answers. */
#include <string.h>

#include "agent/agent.h"
#include "agent/hooks.h"

#define EXPORT __attribute__((visibility("default")))

/* A driver older than the call lacks it; a program that found our symbol is told so in the driver's
 * words. */
static const CUresult missing = CUDA_ERROR_NOT_SUPPORTED;

#define MAKE_INIT(sym, params, args)                                                               \
	EXPORT CUresult sym params                                                                 \
	{                                                                                          \
		if (!REAL(sym))                                                                    \
			return real_present() ? missing : CUDA_ERROR_NO_DEVICE;                    \
		CUresult made_result = REAL(sym) args;                                             \
		if (made_result == CUDA_SUCCESS)                                                   \
			agent_start();                                                             \
		return made_result;                                                                \
	}

#define MAKE_PROC(sym, params, args)                                                               \
	EXPORT CUresult sym params                                                                 \
	{                                                                                          \
		if (!REAL(sym))                                                                    \
			return missing;                                                            \
		CUresult made_result = REAL(sym) args;                                             \
		if (made_result == CUDA_SUCCESS && fn && *fn && symbol)                            \
			*fn = resolve_hook(symbol, *fn, version, flags);                           \
		return made_result;                                                                \
	}

#define MAKE_OWN(sym, params, args)                                                                \
	CUresult hook_##sym params;                                                                \
	EXPORT CUresult sym params                                                                 \
	{                                                                                          \
		if (!REAL(sym))                                                                    \
			return missing;                                                            \
		return agent_on() ? hook_##sym args : REAL(sym) args;                              \
	}

/* A call, and a look at what came of it. */
#define MAKE_LOOK(sym, params, args, look)                                                         \
	EXPORT CUresult sym params                                                                 \
	{                                                                                          \
		if (!REAL(sym))                                                                    \
			return missing;                                                            \
		CUresult made_result = REAL(sym) args;                                             \
		if (agent_on())                                                                    \
			look;                                                                      \
		return made_result;                                                                \
	}

/* A call that waits for what is in that stream. */
#define MAKE_WAIT(sym, params, args, look, waits_for)                                              \
	EXPORT CUresult sym params                                                                 \
	{                                                                                          \
		if (!REAL(sym))                                                                    \
			return missing;                                                            \
		uint64_t made_launches = agent_on() ? blackbox_launches() : 0;                     \
		CUresult made_result = REAL(sym) args;                                             \
		if (agent_on())                                                                    \
			look(#sym, made_result, waits_for, made_per_thread, made_launches);        \
		return made_result;                                                                \
	}

/* A call during which nothing of ours is loaded. */
#define MAKE_GATE(sym, params, args, before, after)                                                \
	EXPORT CUresult sym params                                                                 \
	{                                                                                          \
		if (!REAL(sym))                                                                    \
			return missing;                                                            \
		if (!agent_on())                                                                   \
			return REAL(sym) args;                                                     \
		gate_enter(&agent.gate);                                                           \
		before;                                                                            \
		CUresult made_result = REAL(sym) args;                                             \
		after;                                                                             \
		gate_leave(&agent.gate);                                                           \
		return made_result;                                                                \
	}

static void came_to_rest(const char *call, CUresult r, enum load_hurry hurry)
{
	if (r == CUDA_SUCCESS)
		agent_moment(hurry);
	else
		blackbox_result(call, r);
}

/* Its result is there, so all that came before it in its stream is done. */
static void has_read(const char *call, CUresult r, CUstream stream, bool per_thread, uint64_t launches)
{
	if (r == CUDA_SUCCESS)
		stream_synchronised(stream, per_thread, launches);
	came_to_rest(call, r, LOAD_SYNC);
}

static void has_synchronised(const char *call, CUresult r, CUstream stream, bool per_thread, uint64_t launches)
{
	if (r == CUDA_SUCCESS) {
		stream_synchronised(stream, per_thread, launches);
		devmap_after_sync(NULL);
	}
	came_to_rest(call, r, LOAD_SYNC);
}

static void has_begun_capture(CUresult r)
{
	if (r != CUDA_SUCCESS)
		capture_ended();
}

/* Other errors say that this call ended nothing. */
static void has_ended_capture(CUresult r)
{
	if (r == CUDA_SUCCESS || r == CUDA_ERROR_STREAM_CAPTURE_INVALIDATED ||
		r == CUDA_ERROR_STREAM_CAPTURE_UNJOINED)
		capture_ended();
}

#define MAKE_AFTER(sym, params, args) MAKE_LOOK(sym, params, args, came_to_rest(#sym, made_result, LOAD_SYNC))
#define MAKE_POLL(sym, params, args) MAKE_LOOK(sym, params, args, came_to_rest(#sym, made_result, LOAD_POLL))
#define MAKE_READ(sym, params, args) MAKE_WAIT(sym, params, args, has_read, NULL)
#define MAKE_STREAM(sym, params, args) MAKE_WAIT(sym, params, args, has_synchronised, stream)
#define MAKE_ENDCAPTURE(sym, params, args) MAKE_LOOK(sym, params, args, has_ended_capture(made_result))
#define MAKE_GATED(sym, params, args) MAKE_GATE(sym, params, args, , )
#define MAKE_WORK(sym, params, args)                                                               \
	MAKE_GATE(sym, params, args, stream_used(stream, made_per_thread),                         \
		(stream_used_until_now(stream, made_per_thread), devmap_touched()))
/* Between begin and end of a capture nothing may be loaded, queried or synchronised. */
#define MAKE_CAPTURE(sym, params, args)                                                            \
	MAKE_GATE(sym, params, args, capture_begun(), has_begun_capture(made_result))

#define PASTE(a, b) PASTE_(a, b)
#define PASTE_(a, b) a##b
#define MAKE(sym, base, params, args) PASTE(MAKE_, CLASS_##base)(sym, params, args)

#define HOOK_SOFT(...)
#define HOOK_STUB(...)
#define HOOK_BOTH(...) __VA_ARGS__
#define HOOK_HSTUB(...) __VA_ARGS__
#define TWIN_(sym, params, args)
#define TWIN__ptsz(sym, params, args) MAKE(sym##_ptsz, sym, params, args)
#define TWIN__ptds(sym, params, args) MAKE(sym##_ptds, sym, params, args)

enum { made_per_thread = 0 };
#define PLAIN_ROW(name, suffix, since, ptds, flags, params, args)                                  \
	HOOK_##flags(MAKE(name##suffix, name##suffix, params, args))
CUDA_CALLS(PLAIN_ROW)

/* The twins in a scope of their own file: their stream 0 is the thread's. */
#define made_per_thread 1
#define TWIN_ROW(name, suffix, since, ptds, flags, params, args)                                   \
	HOOK_##flags(TWIN_##ptds(name##suffix, params, args))
CUDA_CALLS(TWIN_ROW)
#undef made_per_thread

/* -- what cuGetProcAddress answers ----------------------------------------- */

struct row {
	const char *name, *symbol;
	size_t real; /* offset of its pointer in struct real */
	void *hook;  /* NULL: not hooked */
	int since;
	bool twin;
};

#define OURS_SOFT(sym) NULL
#define OURS_STUB(sym) NULL
#define OURS_BOTH(sym) (void *)sym
#define OURS_HSTUB(sym) (void *)sym
#define ROW_TWIN_(...)
#define ROW_TWIN__ptsz(name, sym, since, flags)                                                    \
	{ #name, #sym "_ptsz", offsetof(struct real, sym##_ptsz), OURS_##flags(sym##_ptsz),        \
		since < 7000 ? 7000 : since, true },
#define ROW_TWIN__ptds(name, sym, since, flags)                                                    \
	{ #name, #sym "_ptds", offsetof(struct real, sym##_ptds), OURS_##flags(sym##_ptds),        \
		since < 7000 ? 7000 : since, true },
#define ROW(name, suffix, since, ptds, flags, params, args)                                        \
	{ #name, #name #suffix, offsetof(struct real, name##suffix), OURS_##flags(name##suffix),   \
		since, false },                                                                    \
		ROW_TWIN_##ptds(name, name##suffix, since, flags)

static const struct row rows[] = { CUDA_CALLS(ROW) };

/* The symbol the driver answered with is known by its address. A driver that answers with an
 * address it does not export is matched by name, version and stream flag instead. */
void *resolve_hook(const char *name, void *found, int version, cuuint64_t flags)
{
	const char *base = (const char *)real_calls();
	const struct row *by_version = NULL;
	bool per_thread = flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
	size_t len = strlen(name);
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		const struct row *r = &rows[i];
		if (strcmp(r->name, name) && (strncmp(r->symbol, name, len) || r->symbol[len]))
			continue;
		if (*(void *const *)(base + r->real) == found)
			return r->hook ? r->hook : found;
		if (r->since <= version &&
			(!by_version || r->twin == per_thread || by_version->twin != per_thread))
			by_version = r;
	}
	return by_version && by_version->hook ? by_version->hook : found;
}

size_t resolve_pairs(struct hook_pair *out, size_t max)
{
	const char *base = (const char *)real_calls();
	size_t n = 0;
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]) && n < max; i++) {
		void *real = *(void *const *)(base + rows[i].real);
		if (rows[i].hook && real)
			out[n++] = (struct hook_pair){ rows[i].symbol, real, rows[i].hook };
	}
	return n;
}
