/* guards.c - see guards.h. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>

#include "cli/guards.h"
#include "cli/native.h"
#include "live/program.h"

/* A session with guards keeps its tier. */
static void choose_tier(struct session *s, bool verbose, struct live_choice *tier, char why[256])
{
	char path[PATH_MAX], driver[PATH_MAX];
	uint32_t map;
	*tier = (struct live_choice){ LIVE_TIER_INTERPRETED, "its driver is not known" };
	if (live_find_map(s, &map))
		return;
	snprintf(path, sizeof(path), "%s/libegpu-driver.so.1", session_path(s));
	if (realpath(path, driver))
		native_choose(driver, tier, why);
	if (verbose)
		say("programs for kernels that run are %s%s", tier->why ? "interpreted: " : "compiled to machine code",
			tier->why ? tier->why : "");
}

int guards_add(struct session *s, const struct opt_maybe *live, const char *pattern, bool verbose)
{
	struct live_choice tier;
	char why[256];
	struct diag d = { 0 };
	uint32_t points, map;
	if (!live->given || (live_find_map(s, &map) && !live->value))
		return 0;
	if (!pattern)
		return say_fail("--live puts guards into the kernels that you name, and this process has none: give -k KERNEL");
	if (live_parse_points(live->value ? live->value : LIVE_POINTS_DEFAULT, &points, &d))
		return say_fail("%s", d.text);
	choose_tier(s, verbose, &tier, why);
	return live_add_guards(s, points, pattern, &tier, &d) ? say_diag("--live", &d) : 0;
}
