/* check_counts JSON EXPECT: compares memtrace's report with what a program said it would do.
 *
 * EXPECT holds lines `KERNEL-SUBSTRING OP SPACE EXECUTIONS BYTES` (programs/common.h); executions and bytes are
 * summed over the report's sites of that kernel, operation and space. Every difference is printed; status 1.
 */
#include <inttypes.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>

static const char *text(json_t *site, const char *key)
{
	const char *s = json_string_value(json_object_get(site, key));
	return s ? s : "";
}

static uint64_t number(json_t *site, const char *key)
{
	return (uint64_t)json_integer_value(json_object_get(site, key));
}

static int check_line(json_t *sites, const char *line)
{
	char kernel[512], op[32], space[32];
	uint64_t want_runs, want_bytes, runs = 0, bytes = 0;
	size_t i, matched = 0;
	json_t *site;
	if (sscanf(line, "%511s %31s %31s %" SCNu64 " %" SCNu64, kernel, op, space, &want_runs, &want_bytes) != 5) {
		printf("# not an expectation: %s", line);
		return 1;
	}
	json_array_foreach(sites, i, site) {
		if (!strstr(text(site, "mangled"), kernel) || strcmp(text(site, "op"), op) ||
			strcmp(text(site, "space"), space))
			continue;
		matched++;
		runs += number(site, "executions");
		bytes += number(site, "bytes");
	}
	if (runs == want_runs && bytes == want_bytes)
		return 0;
	printf("# %s %s %s: %" PRIu64 " executions, %" PRIu64 " bytes at %zu sites; want %" PRIu64
	       " and %" PRIu64 "\n",
		kernel, op, space, runs, bytes, matched, want_runs, want_bytes);
	return 1;
}

int main(int argc, char **argv)
{
	json_error_t err;
	if (argc != 3) {
		fprintf(stderr, "usage: check_counts JSON EXPECT\n");
		return 2;
	}
	json_t *root = json_load_file(argv[1], 0, &err);
	json_t *sites = json_object_get(json_object_get(root, "tool"), "sites");
	if (!json_is_array(sites)) {
		printf("# %s: no tool.sites (%s)\n", argv[1], root ? "missing" : err.text);
		return 1;
	}
	FILE *f = fopen(argv[2], "r");
	if (!f) {
		printf("# %s: cannot be read\n", argv[2]);
		return 1;
	}
	char line[1024];
	int bad = 0;
	while (fgets(line, sizeof(line), f))
		bad |= check_line(sites, line);
	fclose(f);
	json_decref(root);
	return bad;
}
