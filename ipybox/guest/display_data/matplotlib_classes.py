"""Classes of matplotlib, without its types, which are incomplete. Importing this imports matplotlib."""

from typing import Any

from matplotlib import category, collections, container, dates, lines, patches, ticker

AxLine: Any = lines.AxLine
BarContainer: Any = container.BarContainer
ErrorbarContainer: Any = container.ErrorbarContainer
Line2D: Any = lines.Line2D
PathCollection: Any = collections.PathCollection
PathPatch: Any = patches.PathPatch
StepPatch: Any = patches.StepPatch
Wedge: Any = patches.Wedge

#: The module of dates, and its formatters.
date_module: Any = dates
DATE_FORMATTERS: Any = (dates.DateFormatter, dates.AutoDateFormatter, dates.ConciseDateFormatter)

#: Formatters of ticks with texts of their own: categories and fixed ones, and what calls a function.
NAMING_FORMATTERS: Any = (category.StrCategoryFormatter, ticker.FixedFormatter)
FuncFormatter: Any = ticker.FuncFormatter
