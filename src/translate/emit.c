/* emit.c - the text of single instructions, registers and constants. */
#include "translate/internal.h"

#include <stdio.h>
#include <string.h>

void tr_emit(struct tr *t, const char *fmt, ...)
{
	va_list ap;
	buf_puts(&t->body, "\t");
	va_start(ap, fmt);
	buf_vprintf(&t->body, fmt, ap);
	va_end(ap);
	buf_puts(&t->body, "\n");
}

/* A prefix and a number; the most frequent thing of all here. */
static struct tr_name numbered(const char *prefix, uint32_t n)
{
	struct tr_name out;
	char digits[10];
	uint32_t len = 0, k = 0;
	while (prefix[len]) {
		out.s[len] = prefix[len];
		len++;
	}
	do
		digits[k++] = (char)('0' + n % 10);
	while (n /= 10);
	while (k)
		out.s[len++] = digits[--k];
	out.s[len] = '\0';
	return out;
}

struct tr_name tr_reg(const struct tr_inst *inst, uint32_t r)
{
	return numbered("%egpu_r", inst->id * TR_REGS + r);
}

struct tr_name tr_t64(struct tr *t)
{
	return numbered("%egpu_rd", t->n_t64++);
}

struct tr_name tr_t32(struct tr *t)
{
	return numbered("%egpu_rw", t->n_t32++);
}

struct tr_name tr_pred(struct tr *t)
{
	return numbered("%egpu_rp", t->n_pred++);
}

struct tr_name tr_label(struct tr *t)
{
	return numbered(t->batched ? "$egpu_lb" : "$egpu_l", t->n_labels++);
}

struct tr_name tr_at_label(const struct tr_inst *inst, uint32_t i)
{
	struct tr_name at = numbered("$egpu_f", inst->id);
	strcat(at.s, "_");
	return numbered(at.s, inst->at[i].pc);
}

/* Hexadecimal beyond 32 bits: a decimal INT64_MIN is no PTX constant. */
struct tr_name tr_imm(int64_t value)
{
	if (value >= INT32_MIN && value <= UINT32_MAX)
		return value < 0 ? numbered("-", (uint32_t)-value) : numbered("", (uint32_t)value);
	struct tr_name hex;
	snprintf(hex.s, sizeof(hex.s), "0x%llx", (unsigned long long)value);
	return hex;
}

struct tr_name tr_imm32(int32_t value)
{
	return tr_imm(value);
}

struct tr_name tr_text(const char *s)
{
	struct tr_name n;
	snprintf(n.s, sizeof(n.s), "%s", s);
	return n;
}

struct tr_name tr_table(struct tr *t, uint32_t entry)
{
	struct tr_name r = tr_t64(t);
	if (t->test)
		tr_emit(t, "ld.global.u64 %s, [%s+%u];", r.s, t->table, entry * 8);
	else
		tr_emit(t, "ld.const.u64 %s, [__egpu_table+%u];", r.s, entry * 8);
	return r;
}

struct tr_name tr_map_base(struct tr *t, const struct ebpf_map *m)
{
	t->maps |= 1ull << m->id;
	return tr_table(t, m->id);
}
