/* Whether a device runs machine code that came meanwhile is found out by a test, which tells in time what is wrong. */
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "cli/native.h"
#include "tap.h"

static double seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void breaks(const char *how, const char *why)
{
	struct live_choice c;
	char text[256] = "";
	double from = seconds();

	setenv("BROKEN", how, 1);
	native_choose(BROKEN_DRIVER, &c, text);
	ok(c.tier == LIVE_TIER_INTERPRETED && c.why && strstr(c.why, why), "%s: %s", how, c.why ? c.why : "machine code");
	ok(seconds() - from < 15, "%s: it is said in time (%.1f s)", how, seconds() - from);
}

int main(void)
{
	struct live_choice c;
	char why[256] = "";

	setenv("EGPU_SOFTGPU", "sm_90,sms=2", 1);
	unsetenv("EGPU_LIVE_TIER");
	native_choose(BROKEN_DRIVER, &c, why);
	ok(c.tier == LIVE_TIER_NATIVE && !c.why, "a driver that does it: machine code%s", why);
	breaks("room", "did not come to its end");
	breaks("value", "ran 1 times and computed 0x");
	breaks("crash", "crashed");
	breaks("linker", "linking: CUDA_ERROR_NOT_SUPPORTED");
	native_choose("/nowhere/libcuda.so.1", &c, why);
	ok(c.tier == LIVE_TIER_INTERPRETED && strstr(c.why, "driver"), "no driver: %s", c.why);
	setenv("BROKEN", "no", 1);
	setenv("EGPU_LIVE_TIER", "interpreted", 1);
	native_choose(BROKEN_DRIVER, &c, why);
	ok(c.tier == LIVE_TIER_INTERPRETED && strstr(c.why, "asks for it"), "nobody is asked: %s", c.why);
	setenv("EGPU_LIVE_TIER", "Interpreter", 1);
	native_choose(BROKEN_DRIVER, &c, why);
	ok(c.tier == LIVE_TIER_INTERPRETED && c.why && strstr(c.why, "neither"), "nor for what may have been meant so: %s", c.why ? c.why : "machine code");
	setenv("EGPU_LIVE_TIER", "native", 1);
	native_choose(BROKEN_DRIVER, &c, why);
	ok(c.tier == LIVE_TIER_NATIVE && !c.why, "machine code where it is asked for");
	setenv("EGPU_LIVE_TIER", "", 1);
	native_choose(BROKEN_DRIVER, &c, why);
	ok(c.tier == LIVE_TIER_NATIVE && !c.why, "and where nothing is");
	return tap_done();
}
