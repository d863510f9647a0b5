# The daily commands; Meson does the building (meson.build). `make help` lists them.
BUILD ?= build
PREFIX ?= /usr/local
DESTDIR ?=
# Sanitizer builds and everyday builds differ only in these.
MESON_OPTIONS ?=

.PHONY: all help deps demo check asan tsan fuzz device bench format install dist clean

all: $(BUILD)/build.ninja
	ninja -C $(BUILD)

help:
	@echo 'make demo     install what is missing, build, run the main job (GPU if there is one, else softgpu)'
	@echo 'make check    install what is missing, build, run the test suite (sanitizer builds included)'
	@echo 'make          build into $(BUILD)/; the command is $(BUILD)/egpu'
	@echo 'make deps     install the packages that are missing (scripts/install-deps --list prints them)'
	@echo 'make asan     only the address- and undefined-sanitizer part of the suite'
	@echo 'make tsan     the thread-sanitizer part of the suite'
	@echo 'make fuzz     each fuzz target for SECONDS_EACH seconds (default 60) with libFuzzer'
	@echo 'make device   the suite of a machine with an NVIDIA GPU'
	@echo 'make bench    benchmarks'
	@echo 'make format   clang-format over the tree'
	@echo 'make install  into PREFIX (default /usr/local), DESTDIR respected'
	@echo 'make dist     a relocatable tarball in dist/'

deps:
	scripts/install-deps

$(BUILD)/build.ninja:
	meson setup $(BUILD) --prefix $(PREFIX) $(MESON_OPTIONS)

# A fresh machine has no meson: dependencies come first, then the build in a make of its own.
demo: deps
	$(MAKE) --no-print-directory all
	scripts/demo $(BUILD)

check: deps
	$(MAKE) --no-print-directory all
	$(MAKE) --no-print-directory all BUILD=$(BUILD)-asan MESON_OPTIONS='-Db_sanitize=address,undefined -Db_lundef=false'
	tests/run $(BUILD) $(BUILD)-asan

asan: deps
	$(MAKE) --no-print-directory all BUILD=$(BUILD)-asan MESON_OPTIONS='-Db_sanitize=address,undefined -Db_lundef=false'
	tests/run --only-asan $(BUILD) $(BUILD)-asan

tsan: deps
	$(MAKE) --no-print-directory all BUILD=$(BUILD)-tsan MESON_OPTIONS='-Db_sanitize=thread -Db_lundef=false'
	tests/run --only-asan $(BUILD) $(BUILD)-tsan

fuzz: deps all
	tests/fuzz/run $(or $(SECONDS_EACH),60)

device:
	tests/device/run $(BUILD)

bench: all
	bench/run $(BUILD)

format:
	git ls-files '*.c' '*.h' | xargs clang-format -i

install: all
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

dist: all
	scripts/make-dist $(BUILD)

clean:
	rm -rf $(BUILD) $(BUILD)-asan $(BUILD)-tsan dist
