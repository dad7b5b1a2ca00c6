"""Programs of views, in-place writes and aliases: name -> () -> (function, arguments), new and equal each time."""
import torch

R = torch.randn


def C(*sizes):
    return torch.randn(*sizes, dtype=torch.complex64)


def case(fn, *args):
    return fn, args


def aliased_inputs():
    base = R(6)
    return base[:4], base[2:]


def write_and_view(x):
    x.mul_(2)
    return x.view(-1) if x.is_contiguous() else x.t().contiguous().view(-1)


def in_place(x, *calls):
    for call in calls:
        call(x)
    return x * 1


def split_and_write(x):
    a, b = x.chunk(2)
    a.copy_(b)
    c = x.unbind(0)
    c[0].add_(1)
    return c[1], x.sum()


def write_through_views(x):
    x.diagonal().add_(1)
    x.fill_diagonal_(2)
    x[1:, 1:].mul_(2)
    return x * 1


def chained_views(x):
    y = x * 2
    z = y.view(2, 6).t()[1:4]
    z.add_(1)
    w = z.unsqueeze(0).expand(2, 3, 2)
    return y, z, w, w.sum()


def set_item(x, i):
    x[i] = x[i] * 2
    x[..., -1] += 3
    x[None, 0:1] *= 2
    return x


def masked_write(x, m):
    x.masked_fill_(m, -1.0)
    return torch.where(m, x, x + 1)


def outs(x, b):
    r = torch.add(x, 1, out=b)
    torch.mul(x, x, out=b[:])
    return r, x + b


def constant_is_fresh(x):
    c = torch.tensor([1.0, 2.0, 3.0])
    c[0] = 5
    return x + c, c


def factories(x):
    a = torch.zeros(3)
    a.add_(1)
    return x + a * torch.arange(3.0), torch.eye(3), torch.full((2,), 3)


def view_of_fresh(x):
    y = x * 2
    return y[1:], y.t(), y[:, ::2], y


def lone_strided_view(x):
    return (x * 2)[:, ::2]


def lone_expand(x):
    return (x * 2).expand(3, 4)


def transposed_in_place(x):
    y = x * 1
    y.t_()
    y.unsqueeze_(0)
    y.squeeze_(0)
    y.transpose_(0, 1)
    return y, y.t()


def item_of_constant(x):
    c = torch.tensor(3)
    return x * c.item(), torch.zeros(int(torch.tensor(2)))


def view_as_other_type(x):
    y = (x * 1).view(torch.int32)
    y.add_(1)
    return y.view(torch.float32) * 1


def repeated_output(x):
    y = x + 1
    return y, y, y.view(-1)


CASES = {
    "write_inputs": lambda: case(lambda x, y: (x.add_(1), y.copy_(x), x * y)[2], R(3), R(3)),
    "write_noncontiguous": lambda: case(write_and_view, R(4, 6)[:, ::2]),
    "write_transposed": lambda: case(lambda x: (x.mul_(2), torch.as_strided(x, (2, 2), (1, 4), 0))[1] * 1, R(4, 4).t()),
    "write_then_strided_view": lambda: case(lambda x: (x[1:].add_(1), torch.as_strided(x[1:], (2, 2), (4, 1), 2) * 1), R(4, 4)),
    "strided_view_of_part": lambda: case(lambda x: torch.as_strided(x, (2,), (1,), 0) * 2, R(4, 4)[2]),
    "aliased_inputs_read": lambda: case(lambda x, y: x[2:] + y[:2], *aliased_inputs()),
    "aliased_inputs_written": lambda: case(lambda x, y: (x.add_(1), y * 2)[1], *aliased_inputs()),
    "aliased_inputs_returned": lambda: case(lambda x, y: (x.add_(1), y[1:], x)[1:], *aliased_inputs()),
    "same_input_twice": lambda: (lambda x: case(lambda a, b: (a.add_(1), b * 2)[1], x, x))(R(3)),
    "input_as_output": lambda: case(lambda x, y: (x, x.view(-1), y.t(), x[1:]), R(2, 3), R(2, 3)),
    "written_input_as_output": lambda: case(lambda x: (x.add_(1), x, x[1:])[1:], R(3, 2)),
    "outputs_share": lambda: case(view_of_fresh, R(4, 4)),
    "lone_strided_view": lambda: case(lone_strided_view, R(4, 4)),
    "lone_expand": lambda: case(lone_expand, R(3, 1)),
    "repeated_output": lambda: case(repeated_output, R(3)),
    "detach": lambda: case(lambda x: (lambda d: (d.add_(1), x * 2, d)[1:])(x.detach()), R(3)),
    "split_and_write": lambda: case(split_and_write, R(4, 3)),
    "write_through_views": lambda: case(write_through_views, R(4, 4)),
    "chained_views": lambda: case(chained_views, R(12)),
    "set_item": lambda: case(set_item, R(3, 4), torch.tensor([2, 0])),
    "masked_write": lambda: case(masked_write, R(3, 4), R(3, 4) > 0),
    "masked_assignment": lambda: case(lambda x, m: (x.__setitem__(m, -1.0), x * 2)[1], R(3, 4), R(3, 4) > 0),
    "out_argument": lambda: case(outs, R(3), R(3)),
    "constant": lambda: case(constant_is_fresh, R(3)),
    "constant_alone": lambda: case(lambda x: (torch.tensor([1.0, 2.0]), x + 1), R(2)),
    "factories": lambda: case(factories, R(3)),
    "metadata_in_place": lambda: case(transposed_in_place, R(2, 3)),
    "item_of_constant": lambda: case(item_of_constant, R(3)),
    "write_keeps_layout": lambda: case(lambda x, m: (lambda y: (y.masked_fill_(m, 0.5), y, y.is_contiguous(), y.t().view(-1))[1:])(torch.zeros_like(x)), R(6, 4).t(), R(4, 6) > 0),
    "write_view_keeps_base": lambda: case(lambda x, m: (lambda y: (y.t().masked_fill_(m, 0.5), y.contiguous().add_(1), y.view(-1))[2])(x * 1), R(6, 4), R(4, 6) > 0),
    "resize_fresh": lambda: case(lambda x: (lambda z: (z.resize_(2), z + 1)[1])(x.clone()), R(3)),
    "data_of_fresh": lambda: case(lambda x: (lambda y: (y.data.mul_(3), y * 1)[1])(x * 2), R(3)),
    "fill_and_zero": lambda: case(lambda x: in_place(x, lambda t: t.zero_(), lambda t: t.fill_(2), lambda t: t[0].fill_(1)), R(3, 2)),
    "mixed_dtype_in_place": lambda: case(lambda x, y: (x.add_(y), x.div_(3), x)[2], R(3).double(), R(3)),
    "unsafe_chunks": lambda: case(lambda x: [t * 1 for t in torch.split(x, 2)], R(5, 2)),
    "squeeze_reshape_flatten": lambda: case(lambda x: (x.flatten(), x.reshape(-1), x.t().reshape(2, -1), x.contiguous(), x.to(x.dtype)), R(2, 3)),
    "zero_sizes": lambda: case(lambda x: (x.sum(0), x.view(3, 0), torch.cat([x, x]), x.expand(0, 3) * 1), R(0, 3)),
    "foreach": lambda: case(lambda x, y: (torch._foreach_add_([x, y], [x * 2, y * 2]), torch._foreach_mul([x, y], 2.0))[1], R(3), R(2)),
    "conjugate_view": lambda: case(lambda x: (x.conj() + 0, x.mH[1:] * 2), C(3, 4)),
    "conjugate_fresh": lambda: case(lambda x: (x * 2).conj().resolve_conj(), C(3)),
    "conjugate_twice": lambda: case(lambda x: (x.conj().conj(), x.conj().resolve_conj(), x.conj().clone()), C(3)),
    "conjugate_used": lambda: case(lambda x: (x.conj() * x, x.conj().sum(), x.mH @ x, x.conj().is_conj()), C(3, 3)),
    "conjugate_written": lambda: case(lambda x: (x.conj().mul_(2j), x * 1)[1], C(3)),
    "negative_view": lambda: case(lambda x: (x.conj().imag + 1, x.conj().imag.resolve_neg()), C(3)),
    "unsafe_split_shares": lambda: case(lambda x: torch.unsafe_split(x, 2), R(5, 2)),
    "unsafe_split_written": lambda: case(lambda x: (torch.unsafe_chunk(x, 2)[0].add_(1), x * 2)[1], R(4)),
    "unsafe_split_with_sizes": lambda: case(lambda x: [t * 2 for t in x.unsafe_split_with_sizes([1, 3])], R(4)),
    "nonzero": lambda: case(lambda x: (x.nonzero(), x * 2), R(3, 4).relu()),
    "mask_index": lambda: case(lambda x: (x[x > 0], x.masked_select(x < 0)), R(3, 4)),
    "unique": lambda: case(lambda x: torch.unique(x, return_inverse=True, return_counts=True), R(20).round()),
    "no_type_function": lambda: case(lambda x: (torch.geqrf(x), torch.histogram(x.flatten(), 4)), R(4, 4)),
}
