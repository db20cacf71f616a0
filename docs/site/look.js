// Returns what is wrong with the page as it is shown now, as a list of sentences. docs/site/look.py evaluates it.
(() => {
  const MIN_CONTRAST = 4.5;
  const MIN_CONTRAST_OF_LARGE_TEXT = 3;
  const problems = new Set();

  const rgba = (color) => {
    const [red, green, blue, alpha = 1] = color.match(/[\d.]+/g).map(Number);
    return color.startsWith("color(") ? [red * 255, green * 255, blue * 255, alpha] : [red, green, blue, alpha];
  };
  const over = ([r, g, b, a], [r2, g2, b2]) => [r * a + r2 * (1 - a), g * a + g2 * (1 - a), b * a + b2 * (1 - a), 1];
  const luminance = (color) => {
    const [r, g, b] = color.map((value) => {
      const part = value / 255;
      return part <= 0.03928 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const contrast = (one, other) => {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const ancestors = (element) => {
    const found = [];
    for (let each = element; each; each = each.parentElement) found.push(each);
    return found;
  };

  const page = matchMedia("(prefers-color-scheme: dark)").matches ? [0, 0, 0, 1] : [255, 255, 255, 1];

  // In HTML, what is behind text are the backgrounds of its ancestors.
  const behindHtml = (element) =>
    ancestors(element)
      .map((each) => rgba(getComputedStyle(each).backgroundColor))
      .reduceRight((below, color) => over(color, below), page);

  // In a picture, it is the topmost shape at the middle of the text. There is nothing if that is not in view.
  const behindSvg = (element) => {
    const box = element.getBoundingClientRect();
    const here = document.elementsFromPoint(box.x + box.width / 2, box.y + box.height / 2);
    if (!here.some((each) => element.contains(each))) return undefined;
    const shape = here.find((each) => each.matches("rect, path, circle, ellipse, polygon") && filled(each));
    return shape ? over(rgba(getComputedStyle(shape).fill), page) : page;
  };
  const filled = (shape) => getComputedStyle(shape).fill !== "none";

  const check = (element, text, color, behind) => {
    const style = getComputedStyle(element);
    const opacity = ancestors(element).reduce((product, each) => product * getComputedStyle(each).opacity, 1);
    if (opacity === 0 || !behind) return;
    const [red, green, blue, alpha] = rgba(color);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = contrast(over([red, green, blue, alpha * opacity], behind), behind);
    if (ratio >= (large ? MIN_CONTRAST_OF_LARGE_TEXT : MIN_CONTRAST)) return;
    const where = `${element.localName}${element.classList.length ? "." + [...element.classList].join(".") : ""}`;
    const kind = `contrast of ${ratio.toFixed(1)}: ${where}, ${color} on rgb(${behind.slice(0, 3).map(Math.round)})`;
    if (![...problems].some((problem) => problem.startsWith(kind))) problems.add(`${kind}: ${text.slice(0, 40)}`);
  };

  const walker = document.createTreeWalker(document.documentElement, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement;
    const text = node.data.trim();
    if (!/[\p{L}\p{N}]/u.test(text)) continue; // it is a mark
    if (element.closest("script, style, title, desc, noscript") || !element.checkVisibility()) continue;
    if (getComputedStyle(element).visibility === "hidden") continue;
    const inPicture = element.closest("text");
    if (inPicture) check(element, text, getComputedStyle(element).fill, behindSvg(element));
    else check(element, text, getComputedStyle(element).color, behindHtml(element));
  }

  const root = document.scrollingElement ?? document.documentElement;
  if (document.contentType === "text/html" && root.scrollWidth > innerWidth) {
    problems.add(`${root.scrollWidth} pixels wide, in a window of ${innerWidth}`);
  }
  for (const image of document.images) {
    if (!image.complete || !image.naturalWidth) problems.add(`image not loaded: ${image.src}`);
  }
  return [...problems];
})();
