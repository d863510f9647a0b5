/* opt.c - options and help from a command's table. */
#include <ctype.h>
#include <stdlib.h>
#include <string.h>

#include "cli/cli.h"
#include "cli/near.h"

static const struct opt no_opts[] = { { 0 } };

static const struct opt *rows(const struct command *cmd)
{
	return cmd->opts ? cmd->opts : no_opts;
}

static bool row_is_end(const struct opt *o)
{
	return !o->letter && !o->name;
}

static bool takes_value(const struct opt *o)
{
	return o->kind == OPT_STRING || o->kind == OPT_LIST;
}

static void store(const struct opt *o, void *opts, const char *value)
{
	char *at = (char *)opts + o->offset;
	switch (o->kind) {
	case OPT_FLAG:
		*(bool *)at = true;
		break;
	case OPT_COUNT:
		++*(int *)at;
		break;
	case OPT_STRING:
		*(const char **)at = value;
		break;
	case OPT_MAYBE:
		*(struct opt_maybe *)at = (struct opt_maybe){ true, value };
		break;
	case OPT_LIST: {
		struct opt_list *l = (struct opt_list *)at;
		const char **values = realloc(l->values, (l->n + 1) * sizeof(*values));
		if (!values)
			abort();
		l->values = values;
		l->values[l->n++] = value;
		break;
	}
	}
}

static int unknown(const struct command *cmd, const char *arg)
{
	const char *names[64], *best[3];
	size_t n = 0;
	for (const struct opt *o = rows(cmd); !row_is_end(o) && n < 63; o++)
		if (o->name)
			names[n++] = o->name;
	names[n++] = "help";
	char want[64];
	snprintf(want, sizeof(want), "%.*s", (int)strcspn(arg + 2, "="), arg[1] ? arg + 2 : arg);
	if (arg[1] == '-' && near_names(want, names, n, best, 3))
		say_fail("unknown option %s; did you mean --%s? (egpu %s --help lists the options)",
			arg, best[0], cmd->name);
	else
		say_fail("unknown option %s; egpu %s --help lists the options", arg, cmd->name);
	return -1;
}

static int need_value(const struct command *cmd, const char *arg, const struct opt *o)
{
	say_fail("%s needs a value: %s %s (see egpu %s --help)", arg, arg, o->value, cmd->name);
	return -1;
}

/* One long option at argv[0]; the number of arguments used, or -1. */
static int parse_long(const struct command *cmd, int argc, char **argv, void *opts)
{
	const char *name = argv[0] + 2;
	size_t len = strcspn(name, "=");
	const char *value = name[len] ? name + len + 1 : NULL;
	for (const struct opt *o = rows(cmd); !row_is_end(o); o++) {
		if (!o->name || strlen(o->name) != len || memcmp(o->name, name, len))
			continue;
		if (value && (o->kind == OPT_FLAG || o->kind == OPT_COUNT)) {
			say_fail("--%s takes no value", o->name);
			return -1;
		}
		if (takes_value(o) && !value) {
			if (argc < 2 || !strcmp(argv[1], "--"))
				return need_value(cmd, argv[0], o);
			store(o, opts, argv[1]);
			return 2;
		}
		store(o, opts, value);
		return 1;
	}
	return unknown(cmd, argv[0]);
}

/* A cluster of letters ("-vk PATTERN", "-kPATTERN"). */
static int parse_letters(const struct command *cmd, int argc, char **argv, void *opts)
{
	for (const char *p = argv[0] + 1; *p; p++) {
		const struct opt *o = rows(cmd);
		while (!row_is_end(o) && o->letter != *p)
			o++;
		if (row_is_end(o))
			return unknown(cmd, argv[0]);
		if (!takes_value(o)) {
			store(o, opts, NULL);
			continue;
		}
		if (p[1]) {
			store(o, opts, p + 1);
			return 1;
		}
		if (argc < 2 || !strcmp(argv[1], "--"))
			return need_value(cmd, argv[0], o);
		store(o, opts, argv[1]);
		return 2;
	}
	return 1;
}

static int check_args(const struct command *cmd, const struct opt_rest *rest)
{
	if (rest->n_args >= cmd->min_args && rest->n_args <= cmd->max_args)
		return 0;
	if (rest->n_args > cmd->max_args && strstr(cmd->synopsis, "-- COMMAND") && !rest->command)
		say_fail("%s: put -- before the command to run:\n  egpu %s",
			rest->args[cmd->max_args], cmd->synopsis);
	else if (rest->n_args > cmd->max_args)
		say_fail("unexpected argument %s; usage:\n  egpu %s", rest->args[cmd->max_args],
			cmd->synopsis);
	else
		say_fail("missing argument; usage:\n  egpu %s\n(egpu %s --help has examples)",
			cmd->synopsis, cmd->name);
	return -1;
}

int opt_parse(const struct command *cmd, int argc, char **argv, void *opts, struct opt_rest *rest)
{
	memset(opts, 0, cmd->opts_bytes);
	*rest = (struct opt_rest){ .args = calloc(argc + 1, sizeof(char *)) };
	if (!rest->args)
		abort();
	for (int i = 0; i < argc;) {
		char *a = argv[i];
		if (!strcmp(a, "--")) {
			rest->command = argv + i + 1;
			rest->n_command = argc - i - 1;
			break;
		}
		if (!strcmp(a, "--help") || !strcmp(a, "-h")) {
			opt_help(cmd, stdout);
			return 1;
		}
		/* A negative number is no option: map get NAME -1. */
		if (a[0] != '-' || !a[1] || isdigit((unsigned char)a[1])) {
			rest->args[rest->n_args++] = a;
			i++;
			continue;
		}
		int used = a[1] == '-' ? parse_long(cmd, argc - i, argv + i, opts)
				       : parse_letters(cmd, argc - i, argv + i, opts);
		if (used < 0)
			return -1;
		i += used;
	}
	return check_args(cmd, rest);
}

void opt_free(const struct command *cmd, void *opts, struct opt_rest *rest)
{
	for (const struct opt *o = rows(cmd); !row_is_end(o); o++)
		if (o->kind == OPT_LIST)
			free(((struct opt_list *)((char *)opts + o->offset))->values);
	free(rest->args);
	rest->args = NULL;
}

static void help_row(const struct opt *o, FILE *to)
{
	char left[64], letter[8] = "    ", name[56] = "";
	if (o->letter)
		snprintf(letter, sizeof(letter), "-%c%s", o->letter, o->name ? ", " : "");
	if (o->name)
		snprintf(name, sizeof(name), "--%s%s%s%s", o->name, o->kind == OPT_MAYBE ? "[" : "",
			o->value ? "=" : "", o->value ? o->value : "");
	else if (o->value)
		snprintf(name, sizeof(name), " %s", o->value);
	snprintf(left, sizeof(left), "%s%s%s", letter, name, o->kind == OPT_MAYBE ? "]" : "");
	fprintf(to, "  %-24s %s\n", left, o->help);
}

void opt_help(const struct command *cmd, FILE *to)
{
	fprintf(to, "usage: egpu %s\n\n%s\n", cmd->synopsis, cmd->summary);
	if (!row_is_end(rows(cmd)))
		fprintf(to, "\noptions:\n");
	for (const struct opt *o = rows(cmd); !row_is_end(o); o++)
		help_row(o, to);
	if (cmd->help)
		fprintf(to, "\n%s", cmd->help);
}
