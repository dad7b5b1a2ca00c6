#include "braze/capture/natives/polyfills_iteration.h"

namespace braze::capture {

const char* const kIterationPolyfills = R"py(
def sequence_iterator(sequence):
    i = 0
    while True:
        try:
            item = sequence[i]
        except (IndexError, StopIteration):
            return
        yield item
        i += 1

def call_iterator(function, sentinel):
    while True:
        try:
            item = function()
        except StopIteration:
            return
        if item is sentinel or sentinel == item:
            return
        yield item

# What natives do when they are called, and not when their result is asked for the first item, stands outside of the
# generators.
def enumerate_(iterable, start=0):
    return _enumerate(iter(iterable), start)

def _enumerate(it, i):
    for item in it:
        yield i, item
        i += 1

# Two iterators are kept in variables, so that a frame alone holds them where its graph breaks.
def zip_(*iterables, strict=False):
    if len(iterables) == 2 and not strict:
        return _zip_two(iter(iterables[0]), iter(iterables[1]))
    return _zip([iter(i) for i in iterables], strict)

def _zip_two(first, second):
    for a in first:
        try:
            b = next(second)
        except StopIteration:
            return
        yield a, b

def _zip(iterators, strict):
    if not iterators:
        return
    while True:
        items = []
        for n, it in enumerate_(iterators):
            try:
                items.append(next(it))
            except StopIteration:
                if not strict:
                    return
                if n > 0:
                    which = "" if n == 1 else "s 1-%d" % n
                    raise ValueError("zip() argument %d is shorter than argument%s" % (n + 1, which or " 1")) from None
                for k, other in enumerate_(iterators[1:]):
                    try:
                        next(other)
                    except StopIteration:
                        pass
                    else:
                        which = " 1" if k == 0 else "s 1-%d" % (k + 1)
                        raise ValueError("zip() argument %d is longer than argument%s" % (k + 2, which)) from None
                return
        yield tuple(items)

def map_(function, iterable, *iterables):
    if not iterables:
        return _map(function, iter(iterable))
    return starmap(function, zip_(iterable, *iterables))

def _map(function, it):
    for item in it:
        yield function(item)

def filter_(function, iterable, /):
    return _filter(function, iter(iterable))

def _filter(function, it):
    for item in it:
        if item if function is None else function(item):
            yield item

def reversed_(sequence):
    return _reversed(sequence, len(sequence) - 1)

def _reversed(sequence, i):
    while i >= 0:
        try:
            item = sequence[i]
        except (IndexError, StopIteration):
            return
        yield item
        i -= 1

def all_(iterable):
    for item in iterable:
        if not item:
            return False
    return True

def any_(iterable):
    for item in iterable:
        if item:
            return True
    return False

def sum_(iterable, /, start=0):
    for kind, name, remedy in (str, "strings", "''"), (bytes, "bytes", "b''"), (bytearray, "bytearray", "b''"):
        if isinstance(start, kind):
            raise TypeError("sum() can't sum %s [use %s.join(seq) instead]" % (name, remedy))
    total = start
    it = iter(iterable)
    for item in it:
        total = total + item
        if _since_3_12 and type(total) is float and type(start) in (int, float):
            return _sum_of_floats(it, total)
    return total

# As CPython sums floats since 3.12: with what the rounding has lost, until something else than a number comes.
def _sum_of_floats(it, total):
    lost = 0.0
    for item in it:
        if type(item) is float:
            exact = total + item
            lost += (total - exact) + item if abs(total) >= abs(item) else (item - exact) + total
            total = exact
        elif type(item) is int:
            total += float(item)
        else:
            total = _with_lost(total, lost) + item
            for rest in it:
                total = total + rest
            return total
    return _with_lost(total, lost)

def _with_lost(total, lost):
    return total + lost if lost and lost - lost == 0 else total

def list_of(iterable):
    return [item for item in iterable]

def tuple_of(iterable):
    return tuple([item for item in iterable])

def set_of(iterable):
    return {item for item in iterable}

def contains(container, item):
    for e in container:
        if e is item or e == item:
            return True
    return False

def count_elements(mapping, iterable):
    for element in iterable:
        mapping[element] = mapping.get(element, 0) + 1

_missing = object()

def _extreme(name, less, args, key, default):
    if not args:
        raise TypeError(name + " expected at least 1 argument, got 0")
    items = args[0] if len(args) == 1 else args
    if len(args) > 1 and default is not _missing:
        raise TypeError("Cannot specify a default for %s() with multiple positional arguments" % name)
    best = _missing
    for item in items:
        value = item if key is None else key(item)
        if best is _missing or less(value, best_value):
            best, best_value = item, value
    if best is _missing:
        if default is _missing:
            raise ValueError(name + "() arg is an empty sequence")
        return default
    return best

def min_(*args, key=None, default=_missing):
    return _extreme("min", lambda a, b: a < b, args, key, default)

def max_(*args, key=None, default=_missing):
    return _extreme("max", lambda a, b: a > b, args, key, default)

def _merge_sort(items, keys, reverse):
    if len(items) < 2:
        return items, keys
    middle = len(items) // 2
    a, ka = _merge_sort(items[:middle], keys[:middle], reverse)
    b, kb = _merge_sort(items[middle:], keys[middle:], reverse)
    out, kout, i, j = [], [], 0, 0
    while i < len(a) and j < len(b):
        take_b = ka[i] < kb[j] if reverse else kb[j] < ka[i]
        if take_b:
            out.append(b[j]); kout.append(kb[j]); j += 1
        else:
            out.append(a[i]); kout.append(ka[i]); i += 1
    return out + a[i:] + b[j:], kout + ka[i:] + kb[j:]

# What CPython does for fewer than 64 items, comparison by comparison: a run, then binary insertion.
def _insertion_sort(items, keys):
    n = 2
    if keys[1] < keys[0]:
        while n < len(keys) and keys[n] < keys[n - 1]:
            n += 1
        items[:n], keys[:n] = items[:n][::-1], keys[:n][::-1]
    else:
        while n < len(keys) and not keys[n] < keys[n - 1]:
            n += 1
    while n < len(keys):
        item, key, low, high = items[n], keys[n], 0, n
        while low < high:
            middle = (low + high) >> 1
            if key < keys[middle]:
                high = middle
            else:
                low = middle + 1
        items.insert(low, items.pop(n))
        keys.insert(low, keys.pop(n))
        n += 1

def sorted_(iterable, /, *, key=None, reverse=False):
    items = list(iterable)
    if not _since_3_12:
        range(reverse)   # which was asked for an integer then, not for its truth
    keys = items[:] if key is None else [key(i) for i in items]
    if len(items) < 2:
        return items
    if len(items) >= 64:
        return _merge_sort(items, keys, reverse)[0]
    if reverse:
        items, keys = items[::-1], keys[::-1]
    _insertion_sort(items, keys)
    return items[::-1] if reverse else items

def equal_items(a, b):
    if len(a) != len(b):
        return False
    for i in range(len(a)):
        x, y = a[i], b[i]
        if x is not y and not x == y:
            return False
    return True

def list_sort(self, *, key=None, reverse=False):
    self[:] = sorted_(self, key=key, reverse=reverse)

def reduce(function, sequence, initial=_missing):
    it = iter(sequence)
    if initial is _missing:
        try:
            value = next(it)
        except StopIteration:
            raise TypeError("reduce() of empty iterable with no initial value") from None
    else:
        value = initial
    for item in it:
        value = function(value, item)
    return value

def chain(*iterables):
    rest = list(iterables)
    iterables = None
    while rest:
        for item in rest.pop(0):
            yield item

def from_iterable(iterables):
    return _from_iterable(iter(iterables))

def _from_iterable(it):
    for iterable in it:
        for item in iterable:
            yield item

def _is_index(n):
    return n is None or (n >= 0 if isinstance(n, int) else not isinstance(n, (float, str)))

def islice(iterable, *args):
    s = slice(*args)
    start, stop, step = s.start, s.stop, s.step
    if not (_is_index(start) and _is_index(stop)):
        which = "Indices" if _is_index(stop) or isinstance(stop, int) and stop < -1 else "Stop argument"
        raise ValueError(which + " for islice() must be None or an integer: 0 <= x <= sys.maxsize.")
    if not _is_index(step) or step == 0:
        raise ValueError("Step for islice() must be a positive integer or None.")
    return _islice(iter(iterable), start or 0, stop, step or 1)

def _islice(it, wanted, stop, step):
    i = 0
    while stop is None or i < stop:
        if stop is not None and wanted >= stop:
            while i < stop:
                try:
                    next(it)
                except StopIteration:
                    return
                i += 1
            return
        try:
            item = next(it)
        except StopIteration:
            return
        if i == wanted:
            yield item
            wanted += step
        i += 1

def count(start=0, step=1):
    n = start
    while True:
        yield n
        n += step

def cycle(iterable, /):
    return _cycle(iter(iterable))

def _cycle(it):
    saved = []
    for item in it:
        yield item
        saved.append(item)
    while saved:
        for item in saved:
            yield item

def repeat(object, times=_missing):
    return _forever(object) if times is _missing else _repeat(object, range(times))

def _forever(object):
    while True:
        yield object

def _repeat(object, times):
    for _ in times:
        yield object

def accumulate(iterable, func=None, *, initial=None):
    return _accumulate(iter(iterable), func, initial)

def _accumulate(it, func, total):
    if total is None:
        try:
            total = next(it)
        except StopIteration:
            return
    yield total
    for item in it:
        total = total + item if func is None else func(total, item)
        yield total

def starmap(function, iterable, /):
    return _starmap(function, iter(iterable))

def _starmap(function, it):
    for args in it:
        yield function(*args)

def takewhile(predicate, iterable, /):
    return _takewhile(predicate, iter(iterable))

def _takewhile(predicate, it):
    for item in it:
        if not predicate(item):
            return
        yield item

def dropwhile(predicate, iterable, /):
    return _dropwhile(predicate, iter(iterable))

def _dropwhile(predicate, it):
    for item in it:
        if not predicate(item):
            yield item
            break
    for item in it:
        yield item

def filterfalse(predicate, iterable, /):
    return _filterfalse(predicate, iter(iterable))

def _filterfalse(predicate, it):
    for item in it:
        if not (item if predicate is None else predicate(item)):
            yield item

def pairwise(iterable, /):
    return _pairwise(iter(iterable))

def _pairwise(it):
    try:
        a = next(it)
    except StopIteration:
        return
    for b in it:
        yield a, b
        a = b

def zip_longest(*iterables, fillvalue=None):
    return _zip_longest([iter(i) for i in iterables], fillvalue)

def _zip_longest(iterators, fillvalue):
    active = [True] * len(iterators)
    while True:
        items, some = [], False
        for n, it in enumerate_(iterators):
            if active[n]:
                try:
                    items.append(next(it))
                    some = True
                    continue
                except StopIteration:
                    active[n] = False
            items.append(fillvalue)
        if not some:
            return
        yield tuple(items)

def product(*iterables, repeat=1):
    return _product([tuple(pool) for pool in iterables] * repeat)

def _product(pools):
    result = [()]
    for pool in pools:
        result = [x + (y,) for x in result for y in pool]
    for item in result:
        yield item

def combinations(iterable, r):
    pool = tuple(iterable)
    if r < 0:
        raise ValueError("r must be non-negative")
    return _combinations(pool, r)

def _combinations(pool, r):
    n = len(pool)
    if r > n:
        return
    indices = list(range(r))
    yield tuple([pool[i] for i in indices])
    while True:
        i = r - 1
        while i >= 0 and indices[i] == i + n - r:
            i -= 1
        if i < 0:
            return
        indices[i] += 1
        for j in range(i + 1, r):
            indices[j] = indices[j - 1] + 1
        yield tuple([pool[i] for i in indices])

def permutations(iterable, r=None):
    pool = tuple(iterable)
    r = len(pool) if r is None else r
    if r < 0:
        raise ValueError("r must be non-negative")
    return _permutations(pool, r)

def _permutations(pool, r):
    for indices in product(range(len(pool)), repeat=r):
        if len(set(indices)) == r:
            yield tuple([pool[i] for i in indices])

def compress(data, selectors):
    return _compress(iter(data), iter(selectors))

def _compress(data, selectors):
    for d, s in _zip_two(data, selectors):
        if s:
            yield d

# A group ends where the next one is asked for.
class _GroupBy:
    def __init__(self, iterable, key):
        self.items = iter(iterable)
        self.key = key
        self.wanted = self.present = self.group = _missing

    def __iter__(self):
        return self

    def __next__(self):
        while self.wanted is self.present or self.wanted is not _missing and self.wanted == self.present:
            self.advance()
        self.wanted = self.present
        self.group = group = []
        return self.wanted, self.members(self.wanted, group)

    def advance(self):
        self.item = next(self.items)
        self.present = self.item if self.key is None else self.key(self.item)

    def members(self, wanted, group):
        while self.group is group:
            if self.item is _missing:
                try:
                    self.advance()
                except StopIteration:
                    return
            if wanted is not self.present and not wanted == self.present:
                return
            item, self.item = self.item, _missing
            yield item

def groupby(iterable, key=None):
    return _GroupBy(iterable, key)
)py";

}  // namespace braze::capture
