/* Turns the bytes of a Kineto event array into columns.

   It walks every event once and keeps only the wanted fields; everything else is skipped by
   structure. It accepts plain, regular events only: at anything unusual it stops and leaves that
   event to the general parser (workbench/load/_files/json_events.py), so this file never decides
   what is legal. `_engine_python.py` gives the same tables without it.

   Bounds: `scan` gets `n` bytes of input and at least PADDING zero bytes behind them, and checks
   both. No loop passes a zero byte without comparing with `end`, and every load of eight bytes
   starts at most a few bytes behind `end`; so all reads stay inside the buffer.

   Only the stable ABI of Python 3.11 is used: one build serves all later versions. */

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030B0000
#include <Python.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <structmember.h>

#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "words of eight bytes are read as little-endian numbers"
#endif

typedef const uint8_t *Bytes;

enum { PADDING = 64 };

/* Shared with blocks.py: how an argument is kept, what stands for absent, and where a scan ended. */
enum { INTEGER, TEXT, TOKEN, UNWANTED };
enum { HAS_TIME = 1, HAS_DUR = 2 };
enum { ARRAY_END, NEED_MORE, BLOCK_FULL, ODD, NO_EVENT };
#define MISSING INT64_MIN

/* What came of reading a token or an event. */
typedef enum { FINE, INPUT_ENDS, UNUSUAL, NO_MEMORY } Status;

/* ---- words of eight bytes ---- */

#define ALL(byte) (UINT64_C(0x0101010101010101) * (byte))

static inline uint64_t word_at(Bytes at) {
    uint64_t word;
    memcpy(&word, at, 8);
    return word;
}

static inline uint64_t low_bytes(uint64_t word, size_t count) { /* count below 8 */
    return word & ((UINT64_C(1) << (8 * count)) - 1);
}

/* The zero-byte test. A borrow may mark bytes behind the first hit wrongly; only that is used. */
static inline uint64_t below(uint64_t word, uint64_t limit) { return (word - limit) & ~word; }

static inline size_t first_byte(uint64_t marks) { return (size_t)__builtin_ctzll(marks) >> 3; }

static inline uint64_t mix(uint64_t hash, uint64_t word) {
    hash = (hash ^ word) * UINT64_C(0x9E3779B97F4A7C15);
    return hash ^ (hash >> 32);
}

#define SEED UINT64_C(0x243F6A8885A308D3)

static inline uint64_t hash_last(uint64_t hash, uint64_t word, size_t count) {
    return mix(hash, low_bytes(word, count) ^ (count + 1));
}

static inline uint64_t hash_of(Bytes at, Bytes end) {
    uint64_t hash = SEED;
    for (; end - at >= 8; at += 8) hash = mix(hash, word_at(at));
    return hash_last(hash, word_at(at), (size_t)(end - at));
}

static inline int same(Bytes one, Bytes other, size_t length) {
    for (; length >= 8; length -= 8, one += 8, other += 8)
        if (word_at(one) != word_at(other)) return 0;
    return low_bytes(word_at(one) ^ word_at(other), length) == 0;
}

/* ---- distinct texts, numbered in order of appearance ---- */

typedef struct {
    uint64_t hash;
    size_t start, length;
} Entry;

typedef struct {
    int32_t *slots; /* open addressing: a code, or -1 where empty */
    Entry *entries;
    uint8_t *arena;
    size_t mask, count, room, used, arena_room;
} Texts;

static inline size_t slot_of(const Texts *texts, Bytes text, size_t length, uint64_t hash) {
    size_t slot = (size_t)(hash >> 20) & texts->mask;
    for (;; slot = (slot + 1) & texts->mask) {
        int32_t code = texts->slots[slot];
        if (code < 0) return slot;
        const Entry *entry = &texts->entries[code];
        if (entry->hash == hash && entry->length == length &&
            same(text, texts->arena + entry->start, length))
            return slot;
    }
}

/* Make room for one more text; doubling keeps the copying linear in the number of texts. */
static int reserve(Texts *texts, size_t length) {
    if (length > SIZE_MAX / 4 || texts->count >= INT32_MAX / 4) return 0;
    if (texts->used + length + PADDING > texts->arena_room) {
        size_t room = 2 * (texts->arena_room + length) + 4096;
        uint8_t *arena = realloc(texts->arena, room);
        if (arena == NULL) return 0;
        texts->arena = arena;
        texts->arena_room = room;
    }
    if (texts->count < texts->room) return 1;
    size_t room = texts->room ? 2 * texts->room : 64;
    Entry *entries = realloc(texts->entries, room * sizeof(Entry));
    if (entries == NULL) return 0;
    texts->entries = entries;
    int32_t *slots = realloc(texts->slots, 4 * room * sizeof(int32_t));
    if (slots == NULL) return 0;
    texts->slots = slots;
    /* A quarter full at most: probes stay short, and an empty slot always ends them. */
    memset(slots, 0xFF, 4 * room * sizeof(int32_t));
    texts->mask = 4 * room - 1;
    texts->room = room;
    for (size_t code = 0; code < texts->count; code++) {
        size_t slot = (size_t)(entries[code].hash >> 20) & texts->mask;
        while (slots[slot] >= 0) slot = (slot + 1) & texts->mask;
        slots[slot] = (int32_t)code;
    }
    return 1;
}

/* `text` lies in padded input, or in the arena behind all others. */
static int32_t add(Texts *texts, Bytes text, size_t length, uint64_t hash) {
    if (!reserve(texts, length)) return -1;
    uint8_t *copy = texts->arena + texts->used;
    memmove(copy, text, length);
    memset(copy + length, 0, PADDING);
    texts->entries[texts->count] = (Entry){hash, texts->used, length};
    texts->slots[slot_of(texts, copy, length, hash)] = (int32_t)texts->count;
    texts->used += length;
    return (int32_t)texts->count++;
}

static inline int32_t code_of(Texts *texts, Bytes text, size_t length, uint64_t hash) {
    int32_t code = texts->slots[slot_of(texts, text, length, hash)];
    return code >= 0 ? code : add(texts, text, length, hash);
}

static void clear(Texts *texts) {
    free(texts->slots);
    free(texts->entries);
    free(texts->arena);
}

/* ---- tokens: each function gets where one begins and tells where it ends ---- */

typedef struct {
    Bytes end; /* of a string: its closing quote */
    uint64_t hash;
    Status status;
    int plain; /* no escape and no control character */
} Token;

static inline Token failed(Status status) { return (Token){.status = status}; }

static inline int is_digit(uint8_t byte) { return byte >= '0' && byte <= '9'; }

static inline int is_hex(uint8_t byte) {
    return is_digit(byte) || (byte >= 'a' && byte <= 'f') || (byte >= 'A' && byte <= 'F');
}

/* The common cases are none, and a line break with indent. */
static inline Bytes skip_space(Bytes at, Bytes end) {
    while (at < end && *at <= ' ') {
        if (*at != ' ' && *at != '\n' && *at != '\r' && *at != '\t') return at;
        at++;
        while (at < end && word_at(at) == ALL(' ')) at += 8;
    }
    return at;
}

static int has_control(Bytes at, Bytes end) {
    for (; at < end; at++)
        if (*at < ' ') return 1;
    return 0;
}

/* The rest of a string with something special at `at`. */
static Token odd_string_end(Bytes start, Bytes at, Bytes end) {
    while (at < end) {
        uint64_t word = word_at(at);
        uint64_t marks = (below(word ^ ALL('"'), ALL(1)) | below(word ^ ALL('\\'), ALL(1))) & ALL(0x80);
        if (marks == 0) {
            at += 8;
            continue;
        }
        at += first_byte(marks);
        if (at >= end) break;
        if (*at == '"') return (Token){at, hash_of(start, at), FINE, 0};
        if (at + 1 >= end) break;
        if (at[1] == 'u' && !(is_hex(at[2]) && is_hex(at[3]) && is_hex(at[4]) && is_hex(at[5])))
            return failed(end - at > 5 ? UNUSUAL : INPUT_ENDS);
        if (at[1] == 0 || strchr("\"\\/bfnrtu", at[1]) == NULL) return failed(UNUSUAL);
        at += 2;
    }
    return failed(INPUT_ENDS);
}

/* `at` is behind the opening quote. */
static inline Token string_end(Bytes at, Bytes end) {
    Bytes start = at;
    uint64_t hash = SEED;
    while (at < end) {
        uint64_t word = word_at(at);
        uint64_t marks = (below(word ^ ALL('"'), ALL(1)) | below(word ^ ALL('\\'), ALL(1)) |
                          below(word, ALL(' '))) & ALL(0x80);
        if (marks == 0) {
            hash = mix(hash, word);
            at += 8;
            continue;
        }
        size_t count = first_byte(marks);
        if (at[count] == '"' && at + count < end)
            return (Token){at + count, hash_last(hash, word, count), FINE, 1};
        return odd_string_end(start, at + count, end);
    }
    return failed(INPUT_ENDS);
}

/* A whole string; raw control characters are for the general parser, which counts repairs. */
static inline Token plain_string(Bytes at, Bytes end) {
    Token text = string_end(at + 1, end);
    if (text.status != FINE) return text;
    if (!text.plain && has_control(at + 1, text.end)) return failed(UNUSUAL);
    text.end++;
    return text;
}

static Bytes skip_digits(Bytes at) {
    while (is_digit(*at)) at++;
    return at;
}

static Token number_end(Bytes at, Bytes end) {
    if (*at == '-') at++;
    Bytes start = at;
    at = skip_digits(at);
    /* Python converts no integer of more than 4300 digits. */
    int regular = at > start && at - start < 4000 && !(*start == '0' && at - start > 1);
    if (*at == '.') {
        start = at + 1;
        at = skip_digits(start);
        regular &= at > start;
    }
    if (*at == 'e' || *at == 'E') {
        at++;
        if (*at == '+' || *at == '-') at++;
        start = at;
        at = skip_digits(start);
        regular &= at > start;
    }
    if (at >= end) return failed(INPUT_ENDS);
    return regular ? (Token){.end = at} : failed(UNUSUAL);
}

/* A number, true, false or null. */
static Token scalar_end(Bytes at, Bytes end) {
    size_t length = *at == 'f' ? 5 : 4;
    if (*at != 't' && *at != 'n' && *at != 'f') return number_end(at, end);
    if ((size_t)(end - at) <= length) return failed(INPUT_ENDS);
    int known = memcmp(at, "true", 4) == 0 || memcmp(at, "null", 4) == 0 || memcmp(at, "false", 5) == 0;
    return known ? (Token){.end = at + length} : failed(UNUSUAL);
}

enum { DEEPEST = 64 };

/* An array or object, held to the grammar: what JSON would refuse is for the general parser. */
static Token nested_end(Bytes at, Bytes end) {
    uint8_t closing[DEEPEST];
    int depth = 0;
    for (;;) {
        /* A value begins at `at`, in an object its key. */
        if (depth > 0 && closing[depth - 1] == '}') {
            if (*at != '"') return failed(UNUSUAL);
            Token key = plain_string(at, end);
            if (key.status != FINE) return key;
            at = skip_space(key.end, end);
            if (*at != ':') return failed(at < end ? UNUSUAL : INPUT_ENDS);
            at = skip_space(at + 1, end);
            if (at >= end) return failed(INPUT_ENDS);
        }
        int opens = *at == '[' || *at == '{';
        if (opens) {
            if (depth == DEEPEST) return failed(UNUSUAL);
            closing[depth++] = *at == '[' ? ']' : '}';
            at = skip_space(at + 1, end);
        } else {
            Token token = *at == '"' ? plain_string(at, end) : scalar_end(at, end);
            if (token.status != FINE) return token;
            at = skip_space(token.end, end);
        }
        if (at < end && *at == closing[depth - 1]) {
            do {
                if (--depth == 0) return (Token){.end = at + 1};
                at = skip_space(at + 1, end);
            } while (at < end && *at == closing[depth - 1]);
        } else if (opens && at < end) {
            continue;
        }
        if (at >= end) return failed(INPUT_ENDS);
        if (*at != ',') return failed(UNUSUAL);
        at = skip_space(at + 1, end);
        if (at >= end) return failed(INPUT_ENDS);
    }
}

/* ---- numbers ---- */

static const uint64_t TEN_TO[9] = {1, 10, 100, 1000, 10000, 100000, 1000000, 10000000, 100000000};

/* Up to eight digits: neighbours are joined pairwise, digits to tens, tens to ten thousands. */
static inline size_t eight_digits(Bytes at, uint64_t *value) {
    uint64_t word = word_at(at) ^ ALL('0');
    /* Six more than nine carries into the upper half of a byte. */
    uint64_t no_digit = ((word + ALL(6)) | word) & ALL(0xF0);
    size_t count = no_digit == 0 ? 8 : first_byte(no_digit);
    if (count == 0) {
        *value = 0;
        return 0;
    }
    word <<= 64 - 8 * count;
    word = word * 10 + (word >> 8);
    uint64_t pairs = word & UINT64_C(0x000000FF000000FF);
    uint64_t odd_pairs = (word >> 16) & UINT64_C(0x000000FF000000FF);
    *value = (pairs * UINT64_C(0x000F424000000064) + odd_pairs * UINT64_C(0x0000271000000001)) >> 32;
    return count;
}

static inline Bytes digits_at(Bytes at, uint64_t *value) { /* valid for at most 18 */
    size_t count = eight_digits(at, value);
    at += count;
    while (count == 8) {
        uint64_t more;
        count = eight_digits(at, &more);
        *value = *value * TEN_TO[count] + more;
        at += count;
    }
    return at;
}

static inline Token integer_at(Bytes at, Bytes end, int64_t *value) {
    uint64_t digits;
    int negative = *at == '-';
    Bytes start = at + negative;
    at = digits_at(start, &digits);
    if (at >= end) return failed(INPUT_ENDS);
    ptrdiff_t count = at - start;
    int regular = count > 0 && count <= 18 && !(*start == '0' && count > 1);
    if (!regular || *at == '.' || *at == 'e' || *at == 'E') return failed(UNUSUAL);
    *value = negative ? -(int64_t)digits : (int64_t)digits;
    return (Token){.end = at};
}

/* Microseconds with any number of decimals, as ns: rounded to the nearest, halves to even. */
static inline Token nanoseconds_at(Bytes at, Bytes end, int64_t *value) {
    uint64_t ns;
    int negative = *at == '-';
    Bytes start = at + negative;
    at = digits_at(start, &ns);
    ptrdiff_t count = at - start;
    /* Epoch microseconds have 16 digits; the limit is the year 2116. */
    int regular = count > 0 && count <= 16 && ns < (UINT64_C(1) << 62) / 1000 &&
                  !(*start == '0' && count > 1);
    ns *= 1000;
    if (*at == '.') {
        uint64_t thousandths = 0;
        Bytes first = at + 1;
        size_t taken = 0;
        for (at = first; is_digit(*at) && taken < 3; taken++) thousandths = thousandths * 10 + (*at++ - '0');
        ns += thousandths * TEN_TO[3 - taken];
        if (is_digit(*at)) {
            uint8_t next = *at++;
            int more = 0;
            for (; is_digit(*at); at++) more |= *at != '0';
            ns += next > '5' || (next == '5' && (more || (ns & 1)));
        }
        regular &= at > first;
    }
    if (at >= end) return failed(INPUT_ENDS);
    if (!regular || *at == 'e' || *at == 'E') return failed(UNUSUAL);
    *value = negative ? -(int64_t)ns : (int64_t)ns;
    return (Token){.end = at};
}

/* ---- events ---- */

enum { PH, FLAGS, TS, DUR, NAME, CAT, PID, TID, VALUES, SEEN, SKIPPED, COLUMN_COUNT };
static const Py_ssize_t ITEM_BYTES[COLUMN_COUNT] = {1, 1, 8, 8, 4, 4, 4, 4, 8, 8, 8};
/* Keys of an event besides those of columns. */
enum { ARGS = COLUMN_COUNT, OTHER };

typedef struct {
    PyObject_HEAD
    Py_buffer columns[COLUMN_COUNT];
    Py_ssize_t held; /* how many buffers */
    Py_ssize_t capacity, slot_count;
    uint8_t *types; /* of each slot */
    Texts keys, texts;
    Py_ssize_t rows, repaired_commas;
    int busy;
} Scanner;

#define COLUMN(self, name, type) ((type *)(self)->columns[name].buf)
#define VALUE(self, slot, row) COLUMN(self, VALUES, int64_t)[(slot) * (self)->capacity + (row)]

typedef struct {
    int64_t ts, dur;
    int32_t codes[4]; /* name, cat, pid, tid */
    uint8_t phase, flags;
    int wrote; /* whether an argument was written into the row */
} Event;

#define KEY3(a, b, c) ((a) | (b) << 8 | (c) << 16)
#define KEY4(a, b, c, d) ((uint32_t)KEY3(a, b, c) | (uint32_t)(d) << 24)

/* A key with its closing quote, as the word that a load of eight bytes gives. */
static inline int event_key(Bytes at, Bytes *end) {
    uint64_t word = word_at(at);
    *end = at + 2;
    switch (word & 0xFFFFFF) {
    case KEY3('p', 'h', '"'): return PH;
    case KEY3('t', 's', '"'): return TS;
    default: break;
    }
    *end = at + 3;
    switch ((uint32_t)word) {
    case KEY4('d', 'u', 'r', '"'): return DUR;
    case KEY4('c', 'a', 't', '"'): return CAT;
    case KEY4('p', 'i', 'd', '"'): return PID;
    case KEY4('t', 'i', 'd', '"'): return TID;
    default: break;
    }
    *end = at + 4;
    if (at[4] != '"') return OTHER;
    switch ((uint32_t)word) {
    case KEY4('n', 'a', 'm', 'e'): return NAME;
    case KEY4('a', 'r', 'g', 's'): return ARGS;
    default: return OTHER;
    }
}

static inline Status keep_text(Scanner *self, Event *event, int key, int slot, Bytes at, Bytes end, uint64_t hash) {
    int32_t code = code_of(&self->texts, at, (size_t)(end - at), hash);
    if (code < 0) return NO_MEMORY;
    if (key != OTHER) {
        event->codes[key - NAME] = code;
    } else {
        VALUE(self, slot, self->rows) = code;
        event->wrote = 1;
    }
    return FINE;
}

static inline Status read_string(Scanner *self, Event *event, int key, int slot, Bytes *at, Bytes end) {
    Bytes start = *at + 1;
    Token text = string_end(start, end);
    if (text.status != FINE) return text.status;
    if (key == TS || key == DUR || key == ARGS || (key == PH && text.end != start + 1)) return UNUSUAL;
    if (!text.plain && has_control(start, text.end)) return UNUSUAL;
    *at = text.end + 1;
    if (key == PH) {
        event->phase = *start;
        return FINE;
    }
    int type = slot < 0 ? UNWANTED : self->types[slot];
    if (key != OTHER || type == TEXT) return keep_text(self, event, key, slot, start, text.end, text.hash);
    if (type == TOKEN) return keep_text(self, event, key, slot, start - 1, *at, hash_of(start - 1, *at));
    if (type == UNWANTED) return FINE;
    /* Numbers written as text: some ROCm builds do so for streams. */
    int64_t value = 0;
    Token number = integer_at(start, end, &value);
    if (number.status != FINE || number.end != text.end) return UNUSUAL;
    VALUE(self, slot, self->rows) = value;
    event->wrote = 1;
    return FINE;
}

/* Neither a string nor the arguments. */
static inline Status read_value(Scanner *self, Event *event, int key, int slot, Bytes *at, Bytes end) {
    int type = slot < 0 ? UNWANTED : self->types[slot];
    Bytes start = *at;
    Token token;
    if (key == TS || key == DUR) {
        token = nanoseconds_at(start, end, key == TS ? &event->ts : &event->dur);
        event->flags |= key == TS ? HAS_TIME : HAS_DUR;
    } else if (type == INTEGER) {
        int64_t value = 0;
        token = integer_at(start, end, &value);
        if (token.status == FINE) {
            VALUE(self, slot, self->rows) = value;
            event->wrote = 1;
        }
    } else if (*start == '[' || *start == '{') {
        if (key != OTHER || type == TEXT) return UNUSUAL;
        token = nested_end(start, end);
    } else {
        token = scalar_end(start, end);
        /* Of the keys, only processes and threads may be numbers here. */
        int is_id = (key == PID || key == TID) && (*start == '-' || is_digit(*start));
        is_id &= memcmp(start, "-0", 2) != 0; /* kept as written, and -0 is spelled 0 */
        if (token.status == FINE && ((key != OTHER && !is_id) || type == TEXT)) return UNUSUAL;
    }
    if (token.status != FINE) return token.status;
    *at = token.end;
    if (key == PID || key == TID || type == TOKEN)
        return keep_text(self, event, key, slot, start, token.end, hash_of(start, token.end));
    return FINE;
}

/* Read the event that opens at `*at`; on success `*at` is behind it. */
static inline Status read_event(Scanner *self, Event *event, Bytes *cursor, Bytes end) {
    int args_seen = 0, in_args = 0, wants_key = 0;
    Bytes at = *cursor + 1;
    for (;;) {
        /* One key and its value, or the end of an object. */
        at = skip_space(at, end);
        if (at >= end) return INPUT_ENDS;
        if (*at == '}' && !wants_key) {
            at++;
            if (!in_args) {
                *cursor = at;
                return FINE;
            }
            in_args = 0;
        } else {
            if (*at != '"') return UNUSUAL;
            Bytes key_end;
            int key = OTHER, slot = -1;
            if (in_args || (key = event_key(at + 1, &key_end)) == OTHER) {
                Token name = string_end(at + 1, end);
                if (name.status != FINE) return name.status;
                if (!name.plain) return UNUSUAL;
                key_end = name.end;
                size_t length = (size_t)(key_end - at) - 1;
                if (in_args) slot = self->keys.slots[slot_of(&self->keys, at + 1, length, name.hash)];
            }
            at = key_end + 1;
            if (at < end && *at != ':') at = skip_space(at, end);
            if (at >= end) return INPUT_ENDS;
            if (*at != ':') return UNUSUAL;
            at = skip_space(at + 1, end);
            if (at >= end) return INPUT_ENDS;
            if (key == ARGS && *at == '{') {
                /* Of two equal keys JSON keeps the last one; the general parser decides that. */
                if (args_seen) return UNUSUAL;
                args_seen = in_args = 1;
                wants_key = 0;
                at++;
                continue;
            }
            Status status = *at == '"' ? read_string(self, event, key, slot, &at, end)
                                       : read_value(self, event, key, slot, &at, end);
            if (status != FINE) return status;
        }
        /* After a value: a comma or the end of the object. */
        wants_key = 0;
        if (at < end && *at != ',' && *at != '}') at = skip_space(at, end);
        if (at >= end) return INPUT_ENDS;
        if (*at == ',') {
            at++;
            wants_key = 1;
        } else if (*at != '}') {
            return UNUSUAL;
        }
    }
}

/* What a stopped or skipped event wrote must not stay in the row of the next one. */
static void unwrite(Scanner *self) {
    for (Py_ssize_t slot = 0; slot < self->slot_count; slot++) VALUE(self, slot, self->rows) = MISSING;
}

static void keep_row(Scanner *self, const Event *event) {
    Py_ssize_t row = self->rows++;
    if (event->wrote)
        for (Py_ssize_t slot = 0; slot < self->slot_count; slot++)
            COLUMN(self, SEEN, int64_t)[slot] += VALUE(self, slot, row) != MISSING;
    COLUMN(self, PH, uint8_t)[row] = event->phase;
    COLUMN(self, FLAGS, uint8_t)[row] = event->flags;
    COLUMN(self, TS, int64_t)[row] = event->ts;
    COLUMN(self, DUR, int64_t)[row] = event->dur;
    for (int at = 0; at < 4; at++) COLUMN(self, NAME + at, int32_t)[row] = event->codes[at];
}

/* Read events until the array or the input ends, the block is full, or one is odd.

   `*cursor` is an event, a comma or the closing bracket; afterwards, unless the array ended, the
   start of the first event that is not in the columns yet. -1: no memory. */
static int scan(Scanner *self, Bytes *cursor, Bytes end) {
    int after_event = 0;
    Bytes at = *cursor;
    for (;;) {
        /* Between events: white space, one comma, or the end of the array. */
        *cursor = at = skip_space(at, end);
        int comma = at < end && *at == ',';
        if (comma) at = skip_space(at + 1, end);
        if (at >= end) return NEED_MORE;
        if (*at == ']') {
            self->repaired_commas += comma;
            *cursor = at + 1;
            return ARRAY_END;
        }
        *cursor = at;
        if (*at != '{') return NO_EVENT;
        self->repaired_commas += after_event && !comma;
        if (self->rows >= self->capacity) return BLOCK_FULL;

        Event event = {.codes = {-1, -1, -1, -1}};
        Status status = read_event(self, &event, &at, end);
        /* The phases of KEPT_PHASES; flow arrows, counters and metadata are only counted. */
        uint8_t phase = event.phase;
        int kept = phase == 'X' || phase == 'i' || phase == 'I' || phase == 'B' || phase == 'E';
        if (event.wrote && (status != FINE || !kept)) unwrite(self);
        if (status == NO_MEMORY) return -1;
        if (status == INPUT_ENDS) return NEED_MORE;
        if (status != FINE) return ODD;
        if (kept)
            keep_row(self, &event);
        else
            COLUMN(self, SKIPPED, int64_t)[phase]++;
        after_event = 1;
    }
}

/* ---- the Python type ---- */

static void dealloc(PyObject *object) {
    Scanner *self = (Scanner *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (Py_ssize_t at = 0; at < self->held; at++) PyBuffer_Release(&self->columns[at]);
    clear(&self->keys);
    clear(&self->texts);
    free(self->types);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static int32_t add_object(Texts *texts, PyObject *object) {
    char *raw;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(object, &raw, &length) < 0) return -1;
    int32_t code = -1;
    if (reserve(texts, (size_t)length)) {
        uint8_t *copy = texts->arena + texts->used; /* padded, as the hash needs it */
        memcpy(copy, raw, (size_t)length);
        memset(copy + length, 0, PADDING);
        code = code_of(texts, copy, (size_t)length, hash_of(copy, copy + length));
    }
    if (code < 0) PyErr_NoMemory();
    return code;
}

static int take_slots(Scanner *self, PyObject *slots) {
    if (!PyList_Check(slots)) {
        PyErr_SetString(PyExc_TypeError, "slots must be a list of names and types");
        return -1;
    }
    self->slot_count = PyList_Size(slots);
    self->types = calloc((size_t)self->slot_count + 1, 1);
    if (self->types == NULL || !reserve(&self->keys, 0) || !reserve(&self->texts, 0)) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t slot = 0; slot < self->slot_count; slot++) {
        PyObject *name;
        unsigned char type;
        if (!PyArg_ParseTuple(PyList_GetItem(slots, slot), "Sb", &name, &type)) return -1;
        int32_t code = add_object(&self->keys, name);
        if (code < 0) return -1;
        if (code != slot || type > TOKEN) {
            PyErr_SetString(PyExc_ValueError, "slots must have distinct names and known types");
            return -1;
        }
        self->types[slot] = type;
    }
    return 0;
}

static int take_columns(Scanner *self, PyObject *columns) {
    if (!PyTuple_Check(columns) || PyTuple_Size(columns) != COLUMN_COUNT) {
        PyErr_SetString(PyExc_TypeError, "columns must be the tuple of a block's arrays");
        return -1;
    }
    for (; self->held < COLUMN_COUNT; self->held++) {
        Py_buffer *column = &self->columns[self->held];
        PyObject *array = PyTuple_GetItem(columns, self->held);
        if (PyObject_GetBuffer(array, column, PyBUF_WRITABLE | PyBUF_C_CONTIGUOUS) < 0) return -1;
    }
    self->capacity = self->columns[PH].len;
    Py_ssize_t counts[COLUMN_COUNT], slots = self->slot_count ? self->slot_count : 1;
    for (int at = 0; at < VALUES; at++) counts[at] = self->capacity;
    counts[VALUES] = slots * self->capacity;
    counts[SEEN] = slots;
    counts[SKIPPED] = 256;
    for (int at = 0; at < COLUMN_COUNT; at++) {
        const Py_buffer *column = &self->columns[at];
        if (column->itemsize != ITEM_BYTES[at] || column->len != counts[at] * ITEM_BYTES[at]) {
            PyErr_Format(PyExc_ValueError, "array %d of the block has another type or size", at);
            return -1;
        }
    }
    return 0;
}

static PyObject *new_scanner(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
    PyObject *slots, *columns;
    (void)kwargs;
    if (!PyArg_ParseTuple(args, "OO", &slots, &columns)) return NULL;
    PyObject *self = ((allocfunc)PyType_GetSlot(type, Py_tp_alloc))(type, 0); /* all zero */
    if (self != NULL && (take_slots((Scanner *)self, slots) < 0 || take_columns((Scanner *)self, columns) < 0))
        Py_CLEAR(self);
    return self;
}

/* The one place of the bound: everything after this relies on it. */
static int is_sound(const Scanner *self, const Py_buffer *data, Py_ssize_t start, Py_ssize_t length) {
    static const uint8_t zeros[PADDING];
    return !self->busy && 0 <= self->rows && self->rows <= self->capacity && 0 <= start &&
           start <= length && length <= data->len - PADDING &&
           memcmp((Bytes)data->buf + length, zeros, PADDING) == 0;
}

static PyObject *scan_method(PyObject *object, PyObject *args) {
    Scanner *self = (Scanner *)object;
    Py_buffer data;
    Py_ssize_t start, length;
    if (!PyArg_ParseTuple(args, "y*nn", &data, &start, &length)) return NULL;
    if (!is_sound(self, &data, start, length)) {
        PyBuffer_Release(&data);
        PyErr_SetString(PyExc_ValueError, "scan needs room for rows and input with zeros behind it, one call at a time");
        return NULL;
    }
    Bytes base = data.buf, cursor = base + start;
    int ended;
    self->busy = 1;
    Py_BEGIN_ALLOW_THREADS
    ended = scan(self, &cursor, base + length);
    Py_END_ALLOW_THREADS
    self->busy = 0;
    start = cursor - base;
    PyBuffer_Release(&data);
    return ended < 0 ? PyErr_NoMemory() : Py_BuildValue("ni", start, ended);
}

static int is_busy(const Scanner *self) {
    if (self->busy) PyErr_SetString(PyExc_ValueError, "a scan of another thread goes on");
    return self->busy;
}

static PyObject *code_method(PyObject *object, PyObject *text) {
    if (is_busy((Scanner *)object)) return NULL;
    int32_t code = add_object(&((Scanner *)object)->texts, text);
    return code < 0 ? NULL : PyLong_FromLong(code);
}

static PyObject *texts_method(PyObject *object, PyObject *unused) {
    (void)unused;
    if (is_busy((Scanner *)object)) return NULL;
    const Texts *texts = &((Scanner *)object)->texts;
    PyObject *all = PyList_New((Py_ssize_t)texts->count);
    for (size_t code = 0; all != NULL && code < texts->count; code++) {
        const Entry *entry = &texts->entries[code];
        const char *raw = (const char *)texts->arena + entry->start;
        PyObject *text = PyBytes_FromStringAndSize(raw, (Py_ssize_t)entry->length);
        if (text == NULL) Py_CLEAR(all);
        else PyList_SetItem(all, (Py_ssize_t)code, text);
    }
    return all;
}

static PyMethodDef METHODS[] = {
    {"scan", scan_method, METH_VARARGS, "Read events of data from start on: where it ended, and why."},
    {"code", code_method, METH_O, "Return the number of a text, a new one if it was not seen yet."},
    {"texts", texts_method, METH_NOARGS, "Return all texts in order of their numbers."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef MEMBERS[] = {
    {"rows", T_PYSSIZET, offsetof(Scanner, rows), 0, "Rows of the block that are filled."},
    {"repaired_commas", T_PYSSIZET, offsetof(Scanner, repaired_commas), READONLY,
     "Commas between events that were missing, or stood before the closing bracket."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot TYPE_SLOTS[] = {
    {Py_tp_new, new_scanner},   {Py_tp_dealloc, dealloc}, {Py_tp_methods, METHODS},
    {Py_tp_members, MEMBERS}, {Py_tp_doc, "Fills a block with events and numbers the texts it meets."},
    {0, NULL},
};

static PyType_Spec TYPE_SPEC = {
    "workbench.load._traces.kineto._scanner.Scanner", sizeof(Scanner), 0, Py_TPFLAGS_DEFAULT, TYPE_SLOTS,
};

static int add_type(PyObject *module) {
    PyObject *type = PyType_FromSpec(&TYPE_SPEC);
    int failed = type == NULL || PyModule_AddObjectRef(module, "Scanner", type) < 0 ||
                 PyModule_AddStringConstant(module, "SOURCE_DIGEST", SOURCE_DIGEST) < 0;
    Py_XDECREF(type);
    return failed ? -1 : 0;
}

static PyModuleDef_Slot MODULE_SLOTS[] = {{Py_mod_exec, add_type}, {0, NULL}};

static PyModuleDef MODULE = {
    PyModuleDef_HEAD_INIT, "_scanner", "The compiled scanner of Kineto traces.", 0, NULL, MODULE_SLOTS, NULL, NULL, NULL,
};

PyMODINIT_FUNC PyInit__scanner(void) { return PyModuleDef_Init(&MODULE); }
