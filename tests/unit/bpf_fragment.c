/* A fragment's text form: what is printed is read back, and nothing else is. */
#include "bpf/fragment.h"
#include "tap.h"

#include <errno.h>

static struct ebpf_fragment_param params[] = { { 0, 8 }, { 5, 2 } };
static struct ebpf_fragment_func funcs[] = { { "__egpu_f", ".func __egpu_f {\n}\n" }, { "__egpu_g", "" } };
static const struct ebpf_fragment sample = { .name = "count", .point = EBPF_POINT_ENTRY, .fields = 1 << EBPF_FIELD_SITE | 1 << EBPF_FIELD_SM,
	.maps = 1ull << 63 | 5, .max_insns = 1234, .local_bytes = 16, .params = params, .n_params = 2, .funcs = funcs, .n_funcs = 2,
	.body = "{\n\tret;\n}\n" };

static struct ebpf_when whens[] = { { EBPF_FIELD_SPACE, EBPF_TEST_EQ, 1 }, { EBPF_FIELD_BYTES, EBPF_TEST_NONE, UINT32_MAX } };
static const struct ebpf_batch batch = { .most = 7, .when = whens, .n_when = 2, .begin = "begin\n", .item = "", .end = "#if sm 70\nend\n#endif\n", .apart = "apart\n" };

static void test_round_trip(const struct ebpf_batch *with)
{
	struct buf a = { 0 }, b = { 0 };
	struct diag d = { 0 };
	struct arena *arena = arena_new();
	struct ebpf_fragment f, sent = sample;
	sent.batch = with;
	ebpf_fragment_print(&sent, &a);
	is_int(ebpf_fragment_parse(arena, a.data, a.len, &f, &d), 0, "the text is read back");
	ok(f.point == EBPF_POINT_ENTRY && f.fields == sample.fields && f.maps == sample.maps && f.n_params == 2 &&
		f.params[1].index == 5 && f.params[1].bytes == 2 && f.n_funcs == 2 && f.max_insns == 1234 &&
		f.local_bytes == 16 && !strcmp(f.body, sample.body) && !strcmp(f.funcs[0].text, funcs[0].text),
		"with every part");
	ok(!f.batch == !with && (!with || (f.batch->most == with->most && f.batch->n_when == with->n_when &&
		!memcmp(f.batch->when, with->when, with->n_when * sizeof(*with->when)) && !strcmp(f.batch->begin, with->begin) &&
		!strcmp(f.batch->item, with->item) && !strcmp(f.batch->end, with->end) && !strcmp(f.batch->apart, with->apart) &&
		!f.batch->like == !with->like && (!with->like || !strcmp(f.batch->like, with->like)))), "and its batch");
	ebpf_fragment_print(&f, &b);
	ok(a.len == b.len && !memcmp(a.data, b.data, a.len), "and printed the same");
	int cut = 0;
	for (size_t n = 0; n < a.len; n++)
		cut += ebpf_fragment_parse(arena, a.data, n, &f, NULL) == -EINVAL;
	is_int(cut, a.len, "no cut text is read");
	uint32_t seed = 1;
	for (int i = 0; i < 20000; i++) { /* crashes and reads past the end are for the sanitizers to see */
		char *copy = malloc(a.len);
		memcpy(copy, a.data, a.len);
		for (int k = 0; k < 3; k++) {
			seed = seed * 1664525 + 1013904223;
			copy[(seed >> 8) % a.len] = "0123456789 \nfx\377"[seed >> 28];
		}
		ebpf_fragment_parse(arena, copy, a.len, &f, NULL);
		free(copy);
		if (i % 1000 == 0) {
			arena_free(arena);
			arena = arena_new();
		}
	}
	arena_free(arena);
	buf_free(&a);
	buf_free(&b);
}

/* Of a warp that gathers. */
static void test_gathered(void)
{
	struct buf a = { 0 };
	struct diag d = { 0 };
	struct arena *arena = arena_new();
	struct ebpf_fragment f, g = sample;
	g.point = EBPF_POINT_LOAD;
	g.warp = true;
	g.gathered = 1ull << EBPF_FIELD_ADDRESS | 1ull << EBPF_FIELD_SPACE;
	g.local_bytes = 32 * 12;
	g.n_params = 0;
	ebpf_fragment_print(&g, &a);
	is_int(ebpf_fragment_parse(arena, a.data, a.len, &f, &d), 0, "a fragment that gathers is read back %s", d.text);
	ok(f.gathered == g.gathered && f.fields == g.fields && f.warp, "with what it gathers");
	buf_free(&a);
	arena_free(arena);
}

static void test_repeat(void)
{
	struct buf a = { 0 };
	struct diag d = { 0 };
	struct arena *arena = arena_new();
	struct ebpf_fragment f, g = sample;
	g.anywhere = true;
	g.repeat = "{\n\t%egpu_passes\n}\n";
	g.words = 2;
	ebpf_fragment_print(&g, &a);
	is_int(ebpf_fragment_parse(arena, a.data, a.len, &f, &d), 0, "a body for many runs is read back %s", d.text);
	ok(f.repeat && f.words == 2 && !strcmp(f.repeat, g.repeat) && !strcmp(f.body, g.body), "beside the other");
	buf_free(&a);
	arena_free(arena);
}

static void test_bad(const char *text, const char *why)
{
	struct arena *arena = arena_new();
	struct ebpf_fragment f;
	struct diag d = { 0 };
	int err = ebpf_fragment_parse(arena, text, strlen(text), &f, &d);
	is_int(err, -EINVAL, "refused: %s", why);
	ok(strstr(d.text, why), "says why: %s", d.text);
	arena_free(arena);
}

#define HEAD "fragment 1\nname a\npoint load\nwarp 0\nmax_insns 1\nlocal_bytes 0\n"

#define ANYWHERE HEAD "anywhere 1\n"
#define WARP "fragment 1\nname a\npoint load\nwarp 1\nmax_insns 1\nlocal_bytes 256\n"

static void is_text(const char *text, uint32_t version, uint32_t sm, const char *want)
{
	struct buf out = { 0 };
	ebpf_fragment_text(text, version, sm, &out);
	is_str(out.data ? out.data : "", want, "for PTX %u.%u, sm_%u", version / 100, version % 100, sm);
	buf_free(&out);
}

static void test_targets(void)
{
	static const char text[] = "a\n#if ptx 7.0 sm 80\nb\n#elif ptx 6.2\nc\n#else\nd\n#endif\ne\n#if sm 70\nf\n#endif\n";
	is_text(text, 700, 80, "a\nb\ne\nf\n");
	is_text(text, 800, 75, "a\nc\ne\nf\n");
	is_text(text, 602, 52, "a\nc\ne\n");
	is_text(text, 600, 90, "a\nd\ne\nf\n");
	test_bad(HEAD "fields\nmaps\nbody 12\n#if sm 70\nx\n\nend\n", "#if lines");
	test_bad(HEAD "fields\nmaps\nbody 1\nx\nwords 1\nrepeat 1\nx\nend\n", "may not be repeated");
	test_bad(ANYWHERE "fields\nmaps\nbody 1\nx\nwords 3\nrepeat 1\nx\nend\n", "number of words");
	test_bad(ANYWHERE "fields\nmaps\nbody 1\nx\nwords 1\nrepeat 2\nx\nend\n", "longer than its length");
	test_bad(HEAD "fields\nmaps\nbody 7\n#endif\n\nend\n", "#if lines");
	test_bad(HEAD "fields\nmaps\nbody 6\n#if x\n\nend\n", "#if lines");
	test_bad(HEAD "fields\nmaps\nbody 31\n#if sm 7\n#else\n#else\n#endif\nabc\n\nend\n", "#if lines");
}

int main(void)
{
	test_targets();
	test_round_trip(NULL);
	test_round_trip(&batch);
	test_bad("fragment 2\n", "version 1");
	test_bad("fragment 1\nname a\npoint lod\n", "unknown point");
	test_bad("fragment 1\nname a\npoint load\nwarp 2\n", "'warp'");
	test_bad("fragment 1\nname a\npoint load\nwarp 0\nmax_insns 99999999999999999999999\n", "'max_insns'");
	test_bad(HEAD "fields mem_mask\n", "does not have");
	test_gathered();
	test_repeat();
	test_bad(HEAD "fields\nmaps\ngathered address\n", "thread's program");
	test_bad(WARP "fields\nmaps\ngathered mem_mask\n", "does not have");
	test_bad(WARP "fields\nmaps\ngathered cycles\n", "does not have");
	test_bad(WARP "fields\nmaps\ngathered bytes\n", "do not hand over");
	test_bad(WARP "fields\nmaps\ngathered thread_x\n", "do not hand over");
	test_bad(WARP "fields\nmaps\ngathered lane\n", "do not hand over");
	test_bad(WARP "fields\nmaps\ngathered address space\n", "less local memory");
	test_bad(HEAD "fields\nmaps 64\n", "below 64");
	test_bad(HEAD "fields\nmaps\nparam 0 8\n", "point has none");
	test_bad(HEAD "fields\nmaps\nfunc main 0\n\nbody 0\n\nend\n", "function name");
	test_bad(HEAD "fields\nmaps\nbody 18446744073709551615\n\nend\n", "length");
	test_bad(HEAD "fields\nmaps\nbody 100\nx\nend\n", "cut short");
	test_bad(HEAD "fields\nmaps\nbody 1\nxy\nend\n", "longer");
	test_bad(HEAD "fields\nmaps\nbody 1\nx\nend\nmore", "after the body");
	return tap_done();
}
