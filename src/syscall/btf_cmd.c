/* BPF_BTF_LOAD, and what programs need from BTF. */
#include <bpf/btf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "syscall/object.h"

enum { MAX_BTF_BYTES = 16 << 20, MAX_CHAIN = 32 };

/* The header must describe sections inside the blob; types are looked at when they are used. */
static int btf_check(const void *data, uint32_t size)
{
	struct btf_header h;
	if (size < sizeof(h))
		return -EINVAL;
	memcpy(&h, data, sizeof(h));
	if (h.magic != BTF_MAGIC || h.version != BTF_VERSION || h.hdr_len < sizeof(h) ||
		h.hdr_len > size)
		return -EINVAL;
	uint64_t body = size - h.hdr_len;
	if ((uint64_t)h.type_off + h.type_len > body || (uint64_t)h.str_off + h.str_len > body ||
		!h.str_len)
		return -EINVAL;
	return 0;
}

COMMAND(btf_load)
{
	struct object *o;
	if (!attr->btf_size || attr->btf_size > MAX_BTF_BYTES)
		return attr->btf_size ? -E2BIG : -EINVAL;
	if (!attr->btf)
		return -EFAULT;
	if (btf_check((void *)(uintptr_t)attr->btf, attr->btf_size))
		return diag_set(&l->error, EINVAL, "the BTF is damaged");
	void *data = malloc(attr->btf_size);
	int fd = data ? object_anonymous("egpu-btf") : -ENOMEM;
	int err = fd < 0 ? fd : object_new(l, OBJECT_BTF, fd, &o);
	if (err) {
		free(data);
		return err;
	}
	memcpy(data, (void *)(uintptr_t)attr->btf, attr->btf_size);
	o->btf.data = data;
	o->btf.size = attr->btf_size;
	return object_descriptor(o);
}

void btf_object_release(struct loader *l, struct object *o)
{
	btf__free(o->btf.parsed);
	free(o->btf.data);
}

int btf_object_parse(struct object *o, struct btf **out, struct diag *d)
{
	if (!o->btf.parsed) {
		struct btf *b = btf__new(o->btf.data, o->btf.size);
		if (!b)
			return diag_set(d, EINVAL, "the BTF is damaged: %s", strerror(errno));
		o->btf.parsed = b;
	}
	*out = o->btf.parsed;
	return 0;
}

int btf_object_save(struct loader *l, struct object *o)
{
	char path[320];
	if (o->btf.saved)
		return 0;
	snprintf(path, sizeof(path), "%s/btf-%u", session_path(l->options.session), o->id);
	int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
	int err = fd < 0 ? -errno : 0;
	for (uint32_t at = 0; !err && at < o->btf.size;) {
		ssize_t n = write(fd, (char *)o->btf.data + at, o->btf.size - at);
		if (n < 0)
			err = -errno;
		else
			at += (uint32_t)n;
	}
	if (fd >= 0)
		close(fd);
	if (err)
		return diag_set(
			&l->error, -err, "cannot store BTF in %s: %s", path, strerror(-err));
	o->btf.saved = true;
	o->keep = true; /* its id is in the session now */
	return 0;
}

static const struct btf_type *skip_modifiers(const struct btf *btf, uint32_t id)
{
	const struct btf_type *t = btf__type_by_id(btf, id);
	for (int i = 0; t && i < MAX_CHAIN && (btf_is_mod(t) || btf_is_typedef(t)); i++)
		t = btf__type_by_id(btf, t->type);
	return t;
}

static const char *btf_text(const struct btf *btf, uint32_t offset)
{
	const char *s = btf__name_by_offset(btf, offset);
	return s ? s : "";
}

static bool is_void_pointer(const struct btf *btf, const struct btf_type *t)
{
	const struct btf_type *to = t && btf_is_ptr(t) ? skip_modifiers(btf, t->type) : NULL;
	return to && btf_is_void(to);
}

static bool is_pt_regs(const struct btf *btf, const struct btf_type *t)
{
	const struct btf_type *to = t && btf_is_ptr(t) ? skip_modifiers(btf, t->type) : NULL;
	return to && !strcmp(btf_text(btf, to->name_off), "pt_regs");
}

int btf_context(const struct btf *btf, uint32_t func_type, enum ebpf_context section, enum ebpf_context *context,
	bool *opaque, const char **name, struct diag *d)
{
	static const char wanted[] =
		"struct egpu_entry, egpu_exit, egpu_mem, egpu_load_done, egpu_block, egpu_branch, "
		"egpu_barrier, egpu_call, egpu_insn, egpu_warp or egpu_warp_mem";
	const struct btf_type *func = btf__type_by_id(btf, func_type);
	if (!func || !btf_is_func(func))
		return diag_set(d, EINVAL, "the function's BTF is damaged");
	*name = btf_text(btf, func->name_off);
	const struct btf_type *proto = btf__type_by_id(btf, func->type);
	if (!proto || !btf_is_func_proto(proto))
		return diag_set(d, EINVAL, "function %s: its BTF is damaged", *name);
	const struct btf_type *arg = btf_vlen(proto) ? skip_modifiers(btf, btf_params(proto)->type) : NULL;
	if (section != EBPF_CONTEXT_NONE && (!btf_vlen(proto) || is_void_pointer(btf, arg))) {
		*context = section;
		return 0;
	}
	if (section != EBPF_CONTEXT_NONE && is_pt_regs(btf, arg)) {
		*context = section;
		*opaque = true;
		return 0;
	}
	if (btf_vlen(proto) < 1)
		return diag_set(d, EINVAL,
			"function %s takes no argument; it must take a pointer to %s", *name,
			wanted);
	const struct btf_type *to = arg && btf_is_ptr(arg) ? skip_modifiers(btf, arg->type) : NULL;
	if (!to || !(btf_is_struct(to) || btf_is_fwd(to)))
		return diag_set(d, EINVAL,
			"function %s: its first argument must be a pointer to %s, which tells what "
			"the probe sees",
			*name, wanted);
	const char *type = btf_text(btf, to->name_off);
	*context = ebpf_context_by_struct(type);
	if (*context == EBPF_CONTEXT_NONE)
		return diag_set(d, EINVAL,
			"function %s: its first argument is struct %s *; it must be a pointer to "
			"%s",
			*name, *type ? type : "(no name)", wanted);
	return 0;
}
