# SPDX-License-Identifier: MIT
# Reads the public headers and writes the reference; called by tools/man, which sets mode and out.
#
# What it understands, which is how the headers are written: a comment at the start of a line belongs to the declarations that follow it
# without an empty line; a comment behind a member or a constant belongs to that one; what is in the C++ branch of an #ifdef, and names with
# two underscores, are nobody's business.

function fail(text) { print FILENAME ":" FNR ": " text > "/dev/stderr"; bad = 1 }
function trim(s) { gsub(/^[ \t]+|[ \t]+$/, "", s); return s }
function squeeze(s) { gsub(/[ \t\n]+/, " ", s); return trim(s) }

# ---- reading ----
# An item is a declaration: kind[i] (function, macro, constant, type, enum), name[i], decl[i]. Those that share a comment are a group:
# group[i]; said[g] is its comment, page_of[g] its header.

# The text of a comment, line by line; an empty line is a new paragraph.
function text_of(s) {
    gsub(/\n[ \t]*\*\//, "", s); sub(/[ \t]*\*\/.*/, "", s); sub(/^[ \t]*\/\*[ \t]?/, "", s); gsub(/\n[ \t]*\*[ \t]?/, "\n", s)
    return s
}
function item(k, n, d) {
    if (n ~ /__/ || n !~ /^(weft_|WEFT_|$)/ || ((page, n) in have && n != "")) return
    if (k == "macro" && pending == "" && !open && n ~ /^WEFT_/) return # for the compiler, not for people
    if (!open) { groups++; page_of[groups] = page; said[groups] = pending; open = 1 }
    if ((k == "function" || k == "macro") && said[groups] == "") fail(n " has no comment")
    items++
    kind[items] = k; name[items] = n; decl[items] = d; group[items] = groups; have[page, n] = items; item_of[n] = items
    documented[page]++
}
function identifier_before_paren(d) { match(d, /[A-Za-z_0-9]+\(/); return substr(d, RSTART, RLENGTH - 1) }
function a_function(d) {
    sub(/\{.*/, "", d); sub(/^static inline /, "", d); sub(/WEFT_API /, "", d); sub(/;.*/, "", d)
    gsub(/ (WEFT_PRINTF\([^)]*\)|WEFT_NO_RETURN|WEFT_MUST_USE)/, "", d)
    d = squeeze(d)
    item("function", identifier_before_paren(d), d ";")
}
function a_macro(d,    n, behind) {
    sub(/^#define /, "", d)
    if (match(d, /^[A-Za-z_0-9]+\([^)]*\)/)) { d = substr(d, 1, RLENGTH); item("macro", identifier_before_paren(d), d); return }
    n = d; sub(/[ \t].*/, "", n)
    behind = ""
    if (match(d, /\/\*.*\*\//)) { behind = text_of(substr(d, RSTART, RLENGTH)); d = substr(d, 1, RSTART - 1) }
    if (n == d || (pending == "" && behind == "")) return # for the compiler, not for people
    item("constant", n, squeeze(d))
    if (have[page, n] == items) behind_of[items] = behind
}
function a_type(d,    n, code) {
    code = d; gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, "", code); code = squeeze(code)
    if (code ~ /^struct [a-z_]+;$/) return
    if (code ~ /^enum/) { item("enum", "", d); return }
    n = code
    if (code ~ /\}/) { sub(/.*\} */, "", n); sub(/;.*/, "", n); item("type", n, d); return }
    if (code ~ /\(/) { sub(/^typedef /, "", n); item("type", identifier_before_paren(n), code); return }
    sub(/;.*/, "", n); sub(/.*[ *]/, "", n); item("type", n, code)
}
function depth_of(s) { gsub(/\/\*[^*]*\*+([^\/*][^*]*\*+)*\//, "", s); sub(/\/\*.*/, "", s); return gsub(/\{/, "", s) - gsub(/\}/, "", s) }

/^#define WEFT_VERSION_(MAJOR|MINOR|PATCH)/ { version = version (version == "" ? "" : ".") $3 }
FNR == 1 {
    page = FILENAME; sub(/.*\//, "", page); sub(/\.h$/, "", page)
    pages[++n_pages] = page
    levels = 0; skip = 0; pending = ""; open = 0; collecting = ""; essay_done = 0
}
collecting == "" && /^#[ \t]*if/ {
    levels++
    off[levels] = /^#ifdef __cplusplus/; if (off[levels]) skip++
    pending = ""; open = 0
    next
}
collecting == "" && /^#[ \t]*else/ { if (off[levels]) { off[levels] = 0; skip-- } else { off[levels] = 1; skip++ } next }
collecting == "" && /^#[ \t]*endif/ { if (off[levels]) skip--; levels--; next }
skip { next }
collecting != "" { held = held "\n" $0 }
collecting == "" {
    held = $0
    if (/^[ \t]*$/) { pending = ""; open = 0; next }
    if (/^\/\*/) collecting = "comment"
    else if (/^#define/) collecting = "macro"
    else if (/^(typedef|enum|struct)/) { collecting = "type"; depth = 0 }
    else if (/^WEFT_API/) collecting = "function"
    else if (/^static inline/) collecting = "inline"
    else next
}
collecting == "comment" {
    if (!/\*\//) next
    collecting = ""
    if (held ~ /SPDX-License/) next
    if (!essay_done) { essay[page] = text_of(held); essay_done = 1; next }
    if (held ~ /^\/\* ----/) next
    pending = text_of(held); open = 0
    next
}
collecting == "macro" { if (!/\\$/) { collecting = ""; a_macro(held) } next }
collecting == "function" { if (/;/) { collecting = ""; a_function(held) } next }
collecting == "inline" { if (/^\}/) { collecting = ""; a_function(held) } next }
collecting == "type" { depth += depth_of($0); if (depth == 0 && /;/) { collecting = ""; a_type(held) } next }

# ---- members of a struct or an enum: declared and explained, in member[1..n], about[1..n] ----
function members(d,    n, c, before, closes, end) {
    end = d ~ /^enum/ ? "[,/]" : "[;/]"
    sub(/^[^{]*\{/, "", d); sub(/\}[^}]*$/, "", d)
    n = 0; before = ""
    while (squeeze(d) != "") {
        if (match(d, /^[ \t\n]*\/\*/)) { # a comment of its own: of the member that follows
            closes = index(d, "*/"); before = text_of(trim_start(substr(d, 1, closes + 1))); d = substr(d, closes + 2); continue
        }
        c = match(d, end) ? RSTART : length(d) + 1
        if (substr(d, c, 1) == "/" && substr(d, c + 1, 1) != "*") c = length(d) + 1
        n++; member[n] = squeeze(substr(d, 1, c - 1)); about[n] = before; before = ""
        d = substr(d, substr(d, c, 1) == "/" ? c : c + 1)
        if (match(d, /^[ \t]*\/\*/)) {
            closes = index(d, "*/"); about[n] = text_of(trim_start(substr(d, 1, closes + 1))); d = substr(d, closes + 2)
        }
        if (member[n] == "" || member[n] ~ /weft__/) n--
    }
    return n
}
function trim_start(s) { sub(/^[ \t\n]+/, "", s); return s }

# ---- codes: those that the description of a function names, and those of the functions it refers to with "as" ----
function holds(list, c) { return index(" " list " ", " " c " ") }
function codes_in(text, list,    c) {
    while (match(text, /WEFT_E[A-Z]+/)) {
        c = substr(text, RSTART, RLENGTH); text = substr(text, RSTART + RLENGTH)
        if (c in meaning && !holds(list, c)) list = list (list == "" ? "" : " ") c
    }
    return list
}
function codes_of(i, list, deep,    text, other) {
    if (kind[i] != "function" || decl[i] !~ /^(int|ssize_t) [^*]/) return list # it cannot return one
    text = squeeze(said[group[i]])
    list = codes_in(text, list)
    while (match(text, /[Aa]s weft_[a-z_]+/)) {
        other = substr(text, RSTART + 3, RLENGTH - 3); text = substr(text, RSTART + RLENGTH)
        if (deep < 3 && other in item_of && item_of[other] != i) list = codes_of(item_of[other], list, deep + 1)
    }
    return list
}
function learn_codes(    i, n, m) {
    for (i = 1; i <= items; i++) {
        if (kind[i] != "enum") continue
        n = members(decl[i])
        for (m = 1; m <= n; m++) {
            if (member[m] !~ /^WEFT_E[A-Z]+ = -/) continue
            split(member[m], part, " "); code[++n_codes] = part[1]; meaning[part[1]] = squeeze(about[m])
        }
    }
}
function first_sentence(text) { text = squeeze(text); if (match(text, /\. |\.$/)) text = substr(text, 1, RSTART - 1); return text }
# What a header is about, without the name that it begins with.
function summary(p,    s) {
    s = first_sentence(essay[p]); sub(/^[A-Z][a-z]+: /, "", s)
    return tolower(substr(s, 1, 1)) substr(s, 2)
}
function on_page(i, p) { return page_of[group[i]] == p }
function callable(i) { return kind[i] == "function" || kind[i] == "macro" }

# ---- man pages ----
function plain(s) { gsub(/\\/, "\\e", s); gsub(/…/, "...", s); gsub(/-/, "\\-", s); return s }
function roff(s,    n, i, line, r) {
    gsub(/\\/, "\\e", s); gsub(/…/, "...", s)
    gsub(/-(errno|[0-9])/, "\\\\&", s)
    while (match(s, /`[^`\n]*`/))
        s = substr(s, 1, RSTART - 1) "\\fI" substr(s, RSTART + 1, RLENGTH - 2) "\\fP" substr(s, RSTART + RLENGTH)
    gsub(/(weft|WEFT)_[A-Za-z0-9_]+/, "\\fB&\\fP", s)
    n = split(s, line_of, "\n"); r = ""
    for (i = 1; i <= n; i++) {
        line = trim(line_of[i])
        if (line == "") line = ".PP"
        else if (line ~ /^[.']/) line = "\\&" line
        r = r (i > 1 ? "\n" : "") line
    }
    return r
}
# A prototype, broken behind commas.
function prototype(d,    r, width, n, i, part) {
    n = split(d, part, ", "); r = ""; width = 0
    for (i = 1; i <= n; i++) {
        if (i < n) part[i] = part[i] ","
        if (width && width + length(part[i]) > 72) { r = r "\n    "; width = 4 } else if (i > 1) { r = r " "; width++ }
        r = r part[i]; width += length(part[i])
    }
    return r
}
function bold(s,    n, i, r, l) {
    n = split(plain(s), l, "\n"); r = ""
    for (i = 1; i <= n; i++) r = r (i > 1 ? "\n" : "") "\\fB" l[i] "\\fP"
    return r
}
function names_of(p,    i, list) {
    list = "weft_" p
    for (i = 1; i <= items; i++) if (on_page(i, p) && callable(i) && name[i] != "weft_" p) list = list ", " name[i]
    return list
}
function head(f, n) {
    print ".\\\" Made from the headers by tools/man." > f
    printf ".TH %s 3 \"\" \"weft %s\" \"weft manual\"\n.nh\n.ad l\n", n, version > f
}
function page_man(p,    f, i, g, list, c, k) {
    f = out "/weft_" p ".3"
    head(f, "weft_" p)
    printf ".SH NAME\n%s \\- %s\n", names_of(p), plain(summary(p)) > f
    printf ".SH SYNOPSIS\n.nf\n\\fB#include <weft/%s.h>\\fP    /* or <weft.h> */\n", p > f
    for (i = 1; i <= items; i++) if (on_page(i, p) && kind[i] != "type" && kind[i] != "enum") {
        if (kind[i] != k || group[i] != g) print "" > f # a group of its own
        print bold(prototype(decl[i])) > f; k = kind[i]; g = group[i]
    }
    printf ".fi\n.SH DESCRIPTION\n%s\n", roff(essay[p]) > f
    list = ""
    for (g = 1; g <= groups; g++) if (page_of[g] == p) list = group_man(f, g, list)
    if (list != "") {
        print ".SH ERRORS\nThe codes that are named above, and what they mean everywhere; also\n.BR weft_strerror (3):" > f
        for (c = 1; c <= n_codes; c++) if (holds(list, code[c])) printf ".TP\n.B %s\n%s\n", code[c], roff(meaning[code[c]]) > f
    }
    print ".SH SEE ALSO\n.BR weft (3)" > f
    close(f)
    for (i = 1; i <= items; i++) if (on_page(i, p) && name[i] != "" && name[i] != "weft_" p && kind[i] != "constant") {
        f = out "/" name[i] ".3"
        print ".so man3/weft_" p ".3" > f; close(f)
    }
}
function group_man(f, g, list,    i, title, n, m, d, shown) {
    title = ""; d = ""
    for (i = 1; i <= items; i++) if (group[i] == g) {
        list = codes_of(i, list, 0)
        if (name[i] != "") title = title (title == "" ? "" : ", ") name[i]
        else d = d (d == "" ? "" : " ") decl[i]
    }
    if (title == "" && members(d)) { # an enum without a name: that of its members
        n = members(d); for (m = 1; m <= n; m++) { split(member[m], part, " "); title = title (m > 1 ? ", " : "") part[1] }
        if (n > 4) title = "Constants"
    }
    printf ".SS %s\n", plain(title) > f
    if (said[g] != "") print roff(said[g]) > f
    for (i = 1; i <= items; i++) if (group[i] == g) item_man(f, i, said[g] != "" ? ".PP\n" : "")
    return list
}
# What a type or a constant has beside its description.
function item_man(f, i, apart,    n, m) {
    if (kind[i] == "constant")
        printf ".TP\n.B %s\n%s\n", plain(name[i]), behind_of[i] != "" ? roff(behind_of[i]) : plain(substr(decl[i], length(name[i]) + 2)) > f
    if (kind[i] != "type" && kind[i] != "enum") return
    if (decl[i] !~ /\{/) { printf "%s.nf\n%s\n.fi\n", apart, bold(decl[i]) > f; return }
    n = members(decl[i])
    if (kind[i] == "type" && n) printf "%s\\fBtypedef struct { ... } %s;\\fP\n", apart, name[i] > f
    for (m = 1; m <= n; m++)
        if (about[m] == "") printf ".PP\n.B %s\n", plain(member[m]) > f
        else printf ".TP\n.B %s\n%s\n", plain(member[m]), roff(about[m]) > f
}
function overview_man(    f, p) {
    f = out "/weft.3"
    head(f, "weft")
    print ".SH NAME\nweft \\- a concurrency runtime for C\n.SH SYNOPSIS\n.nf" > f
    print bold("#include <weft.h>") "\n.PP\n" bold("cc -std=c11 app.c $(pkg-config --cflags --libs weft)") "\n.fi" > f
    print ".SH DESCRIPTION\n" roff(essay["weft"]) "\n.SH PAGES" > f
    for (p = 1; p <= n_pages; p++)
        if (documented[pages[p]]) printf ".TP\n.BR weft_%s (3)\n%s\n", pages[p], roff(summary(pages[p])) > f
    close(f)
}

# ---- the index ----
function markdown(s) { s = squeeze(s); gsub(/\|/, "\\|", s); gsub(/</, "\\&lt;", s); return s }
function sentence(s) { return toupper(substr(s, 1, 1)) substr(s, 2) "." }
function index_md(    p, i, h, list) {
    print "# Reference\n"
    print "Every function and macro by header, in reading order: the beginning of its comment, and the codes that the comment names (with those of the"
    print "functions it refers to). The comments in the headers are the reference itself; `make install` installs them as man pages, too: `man weft`,"
    print "`man weft_scope`, `man weft_spawn`. This page is made by `tools/man index`, and a test compares it."
    for (p = 1; p <= n_pages; p++) {
        h = pages[p]
        if (!documented[h]) continue
        printf "\n## [weft/%s.h](../../include/weft/%s.h)\n\n%s\n", h, h, sentence(markdown(summary(h)))
        print "\n| name | what | codes |\n|---|---|---|"
        for (i = 1; i <= items; i++) {
            if (!on_page(i, h) || !callable(i)) continue
            list = codes_of(i, "", 0); gsub(/ /, "`, `", list)
            printf "| `%s` | %s | %s |\n", name[i], markdown(first_sentence(said[group[i]])), list == "" ? "" : "`" list "`"
        }
    }
    print "\n## Codes\n\n| code | meaning |\n|---|---|"
    for (i = 1; i <= n_codes; i++) printf "| `%s` | %s |\n", code[i], markdown(meaning[code[i]])
}

END {
    if (bad) exit 1
    learn_codes()
    if (mode == "names") for (i = 1; i <= items; i++) if (name[i] != "") print page_of[group[i]], kind[i], name[i]
    if (mode == "index") index_md()
    if (mode != "pages") exit 0
    for (p = 1; p <= n_pages; p++) if (documented[pages[p]]) page_man(pages[p])
    overview_man()
}
