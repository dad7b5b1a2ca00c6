"""The command line and the table that the demos share."""
import argparse


def show_table(doc, cases, head, other_head, measure, before=lambda: None):
    """Parses the command line and prints a row for each case that it names, as the rows are measured.

    head, other_head: column titles, and those added under --against. measure(case, against) gives a row's texts.
    """
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--against", choices=["torch.compile"])
    parser.add_argument("cases", nargs="*", default=list(cases))
    options = parser.parse_args()
    unknown = [case for case in options.cases if case not in cases]
    if unknown:
        parser.error(f"no {head[0]} {unknown[0]}; there are {', '.join(cases)}")
    before()
    titles = head + (other_head if options.against else [])
    widths = [max(len(title), 10) for title in titles]
    print("  ".join(t.rjust(w) for t, w in zip(titles, widths, strict=True)), flush=True)
    for case in options.cases:
        print("  ".join(c.rjust(w) for c, w in zip(measure(case, options.against), widths, strict=True)), flush=True)
    return 0
