/* exec_call.c - functions that the device provides: printf, assert, malloc, conditions of graphs.
 *
 * Format strings, arguments and results are read from device memory with the same bounds as any
 * access of the kernel; what is not there prints as (null) or ends the line.
 */
#include "softgpu/internal.h"

#include <stdio.h>
#include <string.h>

#define FLUSH_AT 65536u /* bytes of output that are kept until the grid ends */
#define MAX_STRING 65536u

void sg_output_flush(struct sg_grid *g)
{
	pthread_mutex_lock(&g->output_lock);
	if (g->output.len) {
		fwrite(g->output.data, 1, g->output.len, stdout);
		fflush(stdout);
		buf_reset(&g->output);
	}
	pthread_mutex_unlock(&g->output_lock);
}

/* Appends the NUL-terminated string at a generic address. */
static bool read_string(struct sg_warp *w, int lane, uint64_t addr, struct buf *out)
{
	for (uint32_t n = 0; n < MAX_STRING; n++) {
		const char *p = sg_resolve(w, (uint32_t)lane, SP_GENERIC, addr + n, 1);
		if (!p)
			return false;
		if (!*p)
			return true;
		buf_add(out, p, 1);
	}
	return true;
}

struct printf_args {
	struct sg_warp *w;
	int lane;
	uint64_t addr, off;
};

static uint64_t next_arg(struct printf_args *a, uint32_t bytes)
{
	a->off = (a->off + bytes - 1) & ~(uint64_t)(bytes - 1);
	const void *p = sg_resolve(a->w, (uint32_t)a->lane, SP_GENERIC, a->addr + a->off, bytes);
	uint64_t v = 0;
	if (p)
		memcpy(&v, p, bytes);
	a->off += bytes;
	return v;
}

/* One conversion: flags and numbers in spec ("%-08.3"), then length and letter. */
static void convert(
	struct printf_args *a, struct buf *out, const char *spec, bool wide, char letter)
{
	char fmt[64];
	struct buf text = { 0 };
	double d;
	uint64_t v;
	switch (letter) {
	case 'd':
	case 'i':
		snprintf(fmt, sizeof(fmt), "%sll%c", spec, letter);
		v = next_arg(a, wide ? 8 : 4);
		buf_printf(out, fmt, wide ? (long long)v : (long long)(int32_t)v);
		break;
	case 'u':
	case 'x':
	case 'X':
	case 'o':
		snprintf(fmt, sizeof(fmt), "%sll%c", spec, letter);
		buf_printf(out, fmt, (unsigned long long)next_arg(a, wide ? 8 : 4));
		break;
	case 'c':
		snprintf(fmt, sizeof(fmt), "%sc", spec);
		buf_printf(out, fmt, (int)(unsigned char)next_arg(a, 4));
		break;
	case 'p':
		snprintf(fmt, sizeof(fmt), "%sp", spec);
		buf_printf(out, fmt, (void *)(uintptr_t)next_arg(a, 8));
		break;
	case 's':
		v = next_arg(a, 8);
		if (!v || !read_string(a->w, a->lane, v, &text)) {
			buf_reset(&text);
			buf_puts(&text, "(null)");
		}
		snprintf(fmt, sizeof(fmt), "%ss", spec);
		buf_printf(out, fmt, text.data ? text.data : "");
		buf_free(&text);
		break;
	default:
		v = next_arg(a, 8);
		memcpy(&d, &v, 8);
		snprintf(fmt, sizeof(fmt), "%s%c", spec, letter);
		buf_printf(out, fmt, d);
		break;
	}
}

/* Parses one conversion at s (after '%'); returns where the text goes on. A conversion that printf
 * does not know is printed as it stands. */
static const char *conversion(struct printf_args *a, struct buf *out, const char *s)
{
	const char *start = s;
	char spec[40] = "%";
	size_t n = 1;
	bool wide = false;
	for (; *s && strchr("-+ #0123456789.*", *s); s++) {
		if (*s == '*')
			n += (size_t)snprintf(
				spec + n, sizeof(spec) - n, "%d", (int)next_arg(a, 4));
		else
			spec[n++] = *s;
		if (n > sizeof(spec) - 14)
			return start;
	}
	spec[n] = 0;
	for (; *s && strchr("hlLjzt", *s); s++)
		wide |= *s != 'h';
	if (!*s || !strchr("diuxXocpsfFeEgGaA", *s)) {
		buf_puts(out, "%");
		return start;
	}
	/* Widths that would only serve to fill memory are cut. */
	if (strlen(spec) > 8)
		strcpy(spec, "%");
	convert(a, out, spec, wide, *s);
	return s + 1;
}

static int print(struct sg_warp *w, int lane, uint64_t fmt_addr, uint64_t args)
{
	struct buf fmt = { 0 }, out = { 0 };
	struct printf_args a = { w, lane, args, 0 };
	struct sg_grid *g = w->block->grid;
	int n_args = 0;
	if (!read_string(w, lane, fmt_addr, &fmt)) {
		buf_free(&fmt);
		return -1;
	}
	for (const char *s = fmt.data ? fmt.data : ""; *s;) {
		const char *p = strchr(s, '%');
		buf_add(&out, s, p ? (size_t)(p - s) : strlen(s));
		if (!p)
			break;
		if (p[1] == '%') {
			buf_puts(&out, "%");
			s = p + 2;
		} else {
			s = conversion(&a, &out, p + 1);
			n_args++;
		}
	}
	pthread_mutex_lock(&g->output_lock);
	if (!out.failed && out.len)
		buf_add(&g->output, out.data, out.len);
	bool full = g->output.len > FLUSH_AT;
	pthread_mutex_unlock(&g->output_lock);
	if (full)
		sg_output_flush(g);
	buf_free(&out);
	buf_free(&fmt);
	return n_args;
}

/* __assertfail(message, file, line, function, charSize), in the words of the CUDA runtime. */
static void assert_fail(struct sg_warp *w, const struct sg_insn *in, int lane)
{
	struct buf text[3] = { 0 }, line = { 0 };
	const uint32_t which[3] = { 0, 1, 3 };
	for (int k = 0; k < 3; k++) {
		uint64_t addr = sg_call_arg(w, in, which[k], lane);
		if (!read_string(w, lane, addr, &text[k]))
			buf_puts(&text[k], "?");
		buf_puts(&text[k], "");
	}
	const struct sg_block *b = w->block;
	buf_printf(&line, "%s:%u: %s: block: [%u,%u,%u], thread: [%u,%u,%u] Assertion `%s` failed.",
		text[1].data ? text[1].data : "", (uint32_t)sg_call_arg(w, in, 2, lane),
		text[2].data ? text[2].data : "", b->id[0], b->id[1], b->id[2],
		w->special[SG_S_TIDX][lane], w->special[SG_S_TIDY][lane],
		w->special[SG_S_TIDZ][lane], text[0].data ? text[0].data : "");
	sg_grid_fail(w->block->grid, CUDA_ERROR_ASSERT,
		line.failed ? "softgpu: assertion failed" : line.data);
	for (int k = 0; k < 3; k++)
		buf_free(&text[k]);
	buf_free(&line);
	w->failed = true;
	sg_resched(w);
}

static uint64_t device_malloc(struct sg_warp *w, uint64_t bytes)
{
	uint64_t addr;
	return sg_mem_alloc(w->block->grid->dev, bytes, &addr) == CUDA_SUCCESS ? addr : 0;
}

/* The handle is the address of the condition's word (driver_cond.c). */
static bool set_condition(
	struct sg_warp *w, const struct sg_insn *in, int lane, uint64_t handle, uint32_t value)
{
	uint32_t *p = sg_resolve(w, (uint32_t)lane, SP_GENERIC, handle, sizeof(*p));
	if (!p || handle % sizeof(*p)) {
		sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, lane,
			"cudaGraphSetConditional: 0x%llx is no condition",
			(unsigned long long)handle);
		return false;
	}
	__atomic_store_n(p, value, __ATOMIC_RELEASE);
	return true;
}

static bool builtin_lane(
	struct sg_warp *w, const struct sg_insn *in, const struct sg_func *f, int lane)
{
	uint64_t first = sg_call_arg(w, in, 0, lane);
	switch (f->builtin) {
	case SG_VPRINTF:
		sg_call_result(
			w, in, lane, (uint32_t)print(w, lane, first, sg_call_arg(w, in, 1, lane)));
		return true;
	case SG_MALLOC:
		sg_call_result(w, in, lane, device_malloc(w, first));
		return true;
	case SG_FREE:
		if (first && sg_mem_free(w->block->grid->dev, first) != CUDA_SUCCESS) {
			sg_fault(w, in, CUDA_ERROR_ILLEGAL_ADDRESS, lane,
				"free of 0x%llx, which is no allocation",
				(unsigned long long)first);
			return false;
		}
		return true;
	case SG_SET_CONDITION:
		return set_condition(w, in, lane, first, (uint32_t)sg_call_arg(w, in, 1, lane));
	case SG_ASSERTFAIL:
		assert_fail(w, in, lane);
		return false;
	default:
		sg_fault(w, in, CUDA_ERROR_NOT_SUPPORTED, lane,
			"call of '%s', which softgpu does not provide", f->name);
		return false;
	}
}

void sg_builtin(struct sg_warp *w, const struct sg_insn *in, const struct sg_func *f, uint32_t mask)
{
	for (uint32_t m = mask; m; m &= m - 1)
		if (!builtin_lane(w, in, f, __builtin_ctz(m)))
			return;
}
