"""Random changes of the state that a compiled function reads: compiled and eager must agree after each of them."""

import collections
import os
import random
import types

import pytest
import torch

import braze

SEEDS = range(int(os.environ.get("BRAZE_TEST_SEEDS", "6")))


class Part:
    weight = 1

    def __init__(self, value):
        self.value = value

    def amount(self):
        return self.value * self.weight


class Other(Part):
    weight = 5

    def amount(self):
        return self.value + self.weight


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


class World:
    """A state, a function that reads it, and the changes that can be made."""

    def __init__(self, rng):
        self.rng = rng
        self.module = types.ModuleType("world")
        self.names = self.module.__dict__
        exec(  # noqa: S102  (globals of its own)
            "def scale(n, by=2, *, plus=1): return n * by + plus\n"
            "def make():\n"
            "  captured = 3\n"
            "  def set_captured(v):\n"
            "    nonlocal captured\n"
            "    captured = v\n"
            "  def inner(n): return n + captured\n"
            "  return inner, set_captured\n"
            "inner, set_captured = make()\n"
            "def read(x, root):\n"
            "  total = root.part.amount() + root.part.value * root.slot.value\n"
            "  for item in root.items: total = total * 3 + item.value\n"
            "  for name, part in root.table.items(): total = total * 2 + part.amount() + len(name)\n"
            "  for key in root.order: total = total * 7 + root.order[key]\n"
            "  if root.extra: total += 11\n"
            "  if hasattr(root, 'late'): total += root.late\n"
            "  if LEVEL > 3: total -= LEVEL\n"
            "  return x * (scale(total) % 1009 + inner(len(root.items)))\n",
            self.names,
        )
        self.names["LEVEL"] = 2
        root = self.root = types.SimpleNamespace()
        root.part = Part(2)
        root.slot = Slotted(3)
        root.items = [Part(1), Other(2)]
        root.table = {"a": Part(1), "bb": Other(3)}
        root.order = collections.OrderedDict(p=1, q=2, r=3)
        root.extra = {}
        self.read = self.names["read"]

    def number(self):
        return self.rng.randrange(4)

    def new_part(self):
        return self.rng.choice([Part, Other])(self.number())

    def some_part(self):
        return self.rng.choice([self.root.part, *self.root.items, *self.root.table.values()])

    def change(self):
        rng, root = self.rng, self.root
        action = rng.randrange(24)
        if action == 0:
            self.some_part().value = self.number()
        elif action == 1:
            self.some_part().weight = self.number()
        elif action == 2:
            self.some_part().__dict__.pop("weight", None)
        elif action == 3:
            part = self.some_part()
            part.__class__ = Other if type(part) is Part else Part
        elif action == 4:
            part = self.some_part()
            part.__dict__ = {"unrelated": 0, "value": self.number()}
        elif action == 5:
            root.part = self.new_part()
        elif action == 6:
            root.slot.value = self.number()
        elif action == 7:
            root.slot = Slotted(self.number())
        elif action == 8 and len(root.items) < 4:
            root.items.insert(rng.randrange(len(root.items) + 1), self.new_part())
        elif action == 9 and root.items:
            root.items.pop(rng.randrange(len(root.items)))
        elif action == 10 and root.items:
            root.items[rng.randrange(len(root.items))] = self.some_part()
        elif action == 11:
            root.items = [self.new_part() for _ in range(rng.randrange(3))]
        elif action == 12:
            root.table[rng.choice(["a", "bb", "ccc"])] = self.new_part()
        elif action == 13 and len(root.table) > 1:
            key = rng.choice(list(root.table))
            part = root.table.pop(key)
            if rng.random() < 0.5:
                root.table[key] = part      # only the order changes
        elif action == 14:
            root.order.move_to_end(rng.choice(list(root.order)), last=rng.random() < 0.5)
        elif action == 15:
            root.order[rng.choice("pqr")] = self.number()
        elif action == 16:
            root.extra.clear() if root.extra else root.extra.update(on=1)
        elif action == 17:
            if hasattr(root, "late"):
                del root.late
            else:
                root.late = self.number()
        elif action == 18:
            self.names["LEVEL"] = rng.randrange(6)
        elif action == 19:
            self.names["set_captured"](self.number())
        elif action == 20:
            self.names["scale"].__defaults__ = (rng.randrange(1, 4),)
        elif action == 21:
            self.names["scale"].__kwdefaults__["plus"] = self.number()
        elif action == 22:
            if "len" in self.names:
                del self.names["len"]
            else:
                self.names["len"] = lambda c: 2
        elif action == 23:
            cls = rng.choice([Part, Other])
            cls.weight = self.number()
        return action


@pytest.mark.parametrize("seed", SEEDS)
def test_random_changes(seed, monkeypatch):
    monkeypatch.setattr(Part, "weight", 1)
    monkeypatch.setattr(Other, "weight", 5)
    braze.reset()
    world = World(random.Random(seed))
    compiled = braze.compile(world.read, backend="eager", options={"recompile_limit": 100_000})
    x = torch.arange(1.0, 4.0)
    history = []
    with torch.no_grad():
        for step in range(250):
            history.append(world.change())
            for _ in range(world.rng.randrange(1, 3)):
                got, want = compiled(x, world.root), world.read(x, world.root)
                assert torch.equal(got, want), f"seed {seed}, step {step}, changes {history[-10:]}"
    assert braze.counters()["skipped"] == {}
    assert braze.counters()["graphs"] > 10
