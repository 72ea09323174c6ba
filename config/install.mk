# install.mk: libattn.so, manual pages, completions and units; `make install`, `make deb`.
#
# Included by the Makefile, whose variables it uses.  The version stands in include/attn.h alone:
# `make -s version` prints it.  A packager sets directories on the command line, as
# config/debian/rules does.

PREFIX         = /usr/local
CONFDIR        = /etc/attnd
STATEDIR       = /var/lib/attnd
BINDIR         = $(PREFIX)/bin
LIBDIR         = $(PREFIX)/lib
INCLUDEDIR     = $(PREFIX)/include
MANDIR         = $(PREFIX)/share/man
PKGCONFIGDIR   = $(LIBDIR)/pkgconfig
UNITDIR        = $(PREFIX)/lib/systemd/system
SYSUSERSDIR    = $(PREFIX)/lib/sysusers.d
TMPFILESDIR    = $(PREFIX)/lib/tmpfiles.d
BASHDIR        = $(PREFIX)/share/bash-completion/completions
ZSHDIR         = $(PREFIX)/share/zsh/site-functions
FISHDIR        = $(PREFIX)/share/fish/vendor_completions.d
DATADIR        = $(PREFIX)/share/attnd

VERSION := $(shell sed -nE 's/^\#define ATTN_VERSION "(.*)"$$/\1/p' include/attn.h)

# What programs are linked with: before 1.0.0 a minor version may change the interface.
ABI    := $(shell echo $(VERSION) | sed -E 's/^(0\.[0-9]+|[0-9]+)\..*/\1/')
SHARED := libattn.so.$(VERSION)

# attn_json.h and attn_nearest.h are shared with the daemon and are not installed.
HEADERS := $(filter-out include/attn_json.h include/attn_nearest.h,$(wildcard include/*.h))
SHARE    = $(OUT)/share

version: ## print the version
	@echo $(VERSION)

# ---- What is made ------------------------------------------------------------------------------

$(SHARE)/libattn.map: lib/libattn.symbols config/install.mk
	@mkdir -p $(@D)
	$(Q)sed -n -E -e '1i ATTN_$(ABI) {\nglobal:' -e 's/^attn_[a-z0-9_]+$$/    &;/p' -e '$$a local:\n    *;\n};' $< > $@

$(OUT)/$(SHARED): $(LIB_OBJS) $(SHARE)/libattn.map
	@echo "  LINK  $@"
	$(Q)$(CC) -shared -pthread -Wl,-soname,libattn.so.$(ABI) -Wl,--version-script=$(SHARE)/libattn.map \
	    -Wl,-z,defs,-z,relro,-z,now,--as-needed,-Bsymbolic -o $@ $(LIB_OBJS) $(call pkg_libs,$(LIB_PKGS))

$(OUT)/table_text: $(OBJ)/tests/tools/table_text.o $(OBJ)/server.a $(OUT)/libattn.a
	$(call link,$(SERVER_PKGS) $(LIB_PKGS))
$(OBJ)/tests/tools/table_text.o: LOCAL = -Iserver

# Files that are made of a template: directories may change from one call to the next, so none is
# kept.
vpath %.in config config/man config/systemd config/completions
FILLED = $(addprefix $(SHARE)/,attnd.1 attnd.conf.5 libattn.3 attn.pc attnd.service attnd@.service attnd.sysusers \
         attnd.tmpfiles attnd.json attnd.bash _attnd attnd.fish)
.PHONY: fill
$(FILLED): $(SHARE)/%: %.in $(OUT)/table_text fill
	@mkdir -p $(@D)
	$(Q)tests/tools/fill.sh $< $(OUT)/table_text VERSION=$(VERSION) BINDIR=$(BINDIR) LIBDIR=$(LIBDIR) \
	    INCLUDEDIR=$(INCLUDEDIR) CONFDIR=$(CONFDIR) DATADIR=$(DATADIR) STATEDIR=$(STATEDIR) > $@

# ---- Installing --------------------------------------------------------------------------------

# A row: where, mode, the file, and its name there if it is another.
define INSTALLED
$(BINDIR)         755 $(OUT)/attnd
$(LIBDIR)         644 $(OUT)/libattn.a
$(LIBDIR)         644 $(OUT)/$(SHARED)
$(PKGCONFIGDIR)   644 $(SHARE)/attn.pc
$(MANDIR)/man1    644 $(SHARE)/attnd.1
$(MANDIR)/man5    644 $(SHARE)/attnd.conf.5
$(MANDIR)/man3    644 $(SHARE)/libattn.3
$(UNITDIR)        644 $(SHARE)/attnd.service
$(UNITDIR)        644 $(SHARE)/attnd@.service
$(SYSUSERSDIR)    644 $(SHARE)/attnd.sysusers attnd.conf
$(TMPFILESDIR)    644 $(SHARE)/attnd.tmpfiles attnd.conf
$(BASHDIR)        644 $(SHARE)/attnd.bash attnd
$(ZSHDIR)         644 $(SHARE)/_attnd
$(FISHDIR)        644 $(SHARE)/attnd.fish
endef
define newline


endef
# Each below DATADIR where it is here, without its first directory `config`: the clients, what
# Prometheus, Grafana and HAProxy read, and the demonstration model.
DATA = $(shell find clients -type f ! -path '*/__pycache__/*') config/prometheus/alerts.yml config/prometheus/prometheus.yml config/grafana/attnd.json \
       $(wildcard config/haproxy/* config/demo/*.json config/demo/*.safetensors config/demo/README.md)
ROWS = $(subst $(newline),;,$(INSTALLED));$(foreach header,$(HEADERS),$(INCLUDEDIR) 644 $(header);)$(foreach file,$(DATA),$(DATADIR)/$(patsubst config/%,%,$(dir $(file))) 644 $(file);)
each_row = echo '$(ROWS)' | tr ';' '\n' | while read -r directory mode file name; do \
    [ -z "$$file" ] || at=$(DESTDIR)$$directory/$${name:-$${file\#\#*/}}; $(1); done

# What `install` copies; a packager builds it in a step of its own.
.PHONY: installed
installed: $(OUT)/attnd $(OUT)/libattn.a $(OUT)/$(SHARED) $(FILLED)

install: installed ## install into DESTDIR, PREFIX (/usr/local) and CONFDIR (/etc/attnd)
	@$(call each_row,[ -z "$$file" ] || install -D -m $$mode $$file $$at || exit 1)
	@ln -sf $(SHARED) $(DESTDIR)$(LIBDIR)/libattn.so.$(ABI)
	@ln -sf libattn.so.$(ABI) $(DESTDIR)$(LIBDIR)/libattn.so
	@# A configuration that is there is the administrator's.
	@[ -e $(DESTDIR)$(CONFDIR)/attnd.json ] || \
	    install -D -m 644 $(SHARE)/attnd.json $(DESTDIR)$(CONFDIR)/attnd.json
	@[ -n "$(DESTDIR)" ] || ldconfig || true
	@echo "install: attnd $(VERSION), libattn.so.$(ABI) below $(DESTDIR)$(PREFIX)"

uninstall: $(SHARE)/attnd.json ## remove what install installs, but for a configuration that was changed, and state
	@$(call each_row,[ -z "$$file" ] || rm -f $$at)
	@rm -f $(DESTDIR)$(LIBDIR)/libattn.so $(DESTDIR)$(LIBDIR)/libattn.so.$(ABI)
	@if cmp -s $(SHARE)/attnd.json $(DESTDIR)$(CONFDIR)/attnd.json; then \
	    rm -f $(DESTDIR)$(CONFDIR)/attnd.json; rmdir $(DESTDIR)$(CONFDIR); fi
	@[ -n "$(DESTDIR)" ] || ldconfig || true

# ---- Debian packages ---------------------------------------------------------------------------

MAINTAINER = attnd authors <attnd@attnd.invalid>
DEB        = build/deb
DEB_TREE   = $(DEB)/attnd-$(VERSION)
DEB_FILL   = tests/tools/fill.sh $(1) false VERSION=$(VERSION) ABI=$(ABI) 'MAINTAINER=$(MAINTAINER)' \
             "MAILDATE=$$(git log -1 --format=%cD 2>/dev/null || date -R -r include/attn.h)"

deb: | build/deps/deb ## Debian packages in build/deb/: attnd, libattn, libattn-dev
	$(Q)rm -rf $(DEB) && mkdir -p $(DEB_TREE)
	$(Q)tar -cf - Makefile include lib server clients config examples tests docs *.md LICENSE | tar -xf - -C $(DEB_TREE)
	$(Q)cp -r config/debian $(DEB_TREE)/debian
	$(Q)$(call DEB_FILL,config/debian/control.in) > $(DEB_TREE)/debian/control
	$(Q)$(call DEB_FILL,config/debian/changelog.in) > $(DEB_TREE)/debian/changelog
	$(Q)mv $(DEB_TREE)/debian/libattn.install $(DEB_TREE)/debian/libattn$(ABI).install
	$(Q)for package in attnd libattn$(ABI) libattn-dev; do \
	    cp config/debian/lintian-overrides $(DEB_TREE)/debian/$$package.lintian-overrides; done
	$(Q)sed -n -E -e '1i libattn.so.$(ABI) libattn$(ABI) \#MINVER\#\n* Build-Depends-Package: libattn-dev\n ATTN_$(ABI)@ATTN_$(ABI) $(VERSION)' \
	    -e 's/^attn_[a-z0-9_]+$$/ &@ATTN_$(ABI) $(VERSION)/p' lib/libattn.symbols > $(DEB_TREE)/debian/libattn$(ABI).symbols
	$(Q)cd $(DEB_TREE) && env -u MAKEFLAGS -u MAKELEVEL dpkg-buildpackage -b -us -uc >../build.log 2>&1 || \
	    { tail -n 40 ../build.log; exit 1; }
	@ls $(DEB)/*.deb

sbom: $(OUT)/attnd $(OUT)/$(SHARED) ## bill of materials of what was built, SPDX 2.3: build/attnd.spdx.json
	$(Q)tests/tools/sbom.sh $(VERSION) $(OUT)/attnd $(OUT)/$(SHARED) > $(OUT)/attnd.spdx.json
	@echo "sbom: $(OUT)/attnd.spdx.json, $$(grep -c '"purl"' $(OUT)/attnd.spdx.json) packages"

# ---- Checking ----------------------------------------------------------------------------------

INSTALL_ROOT = $(OUT)/install

# QUICK=1 leaves the packages out, for which a container is booted.
check-install: $(OUT)/attnd | build/deps/$(if $(QUICK),check,package) ## an installation, and the packages in a booted Debian, work and are removed; QUICK=1: no packages
	$(Q)rm -rf $(INSTALL_ROOT) $(OUT)/package.steps
	$(Q)$(MAKE) --no-print-directory install DESTDIR=$(INSTALL_ROOT) PREFIX=/usr
	$(Q)tests/install/check.sh $(INSTALL_ROOT) $(VERSION) $(OUT)
	$(Q)$(MAKE) --no-print-directory uninstall DESTDIR=$(INSTALL_ROOT) PREFIX=/usr
	$(Q)[ -z "$$(find $(INSTALL_ROOT) ! -type d)" ] || { echo "uninstall leaves:"; find $(INSTALL_ROOT) ! -type d; exit 1; }
ifeq ($(QUICK),)
	$(Q)$(MAKE) --no-print-directory deb sbom
	$(Q)tests/install/package.sh $(DEB) $(VERSION) $(OUT)
endif
	@echo "check-install: $$(cat $(OUT)/install.steps) steps of make install, $$(cat $(OUT)/package.steps 2>/dev/null || echo 0)" \
	    "of the packages; $$(grep -vc '^#' lib/libattn.symbols) functions exported; uninstall leaves no file: ok"
