// The rows of a Markdown table, as GitHub writes them: a head, a line of dashes that aligns the columns, and rows.

const DASHES = /^:?-+:?$/;
const MOST_COLUMNS = 50;

// Returns the class of each column of the table that begins at this line, or null if none does.
export function columnsAt(lines, at) {
  if (!lines[at].includes("|") || !lines[at + 1]?.includes("-")) return null;
  const dashes = cellsOf(lines[at + 1]);
  if (dashes.length > MOST_COLUMNS || !dashes.every((cell) => DASHES.test(cell))) return null;
  return cellsOf(lines[at]).length === dashes.length ? dashes.map(sideOf) : null;
}

function sideOf(cell) {
  if (cell[0] === ":") return cell.at(-1) === ":" ? "md-center" : "md-left";
  return cell.at(-1) === ":" ? "md-right" : null;
}

// Returns the cells of the head and of each row, as long as the budget of cells lasts.
export function rowsFrom(lines, at, columnCount, budget, isOtherBlock) {
  const rows = [cellsOf(lines[at])];
  for (let place = at + 2; place < lines.length && budget.left > 0; place += 1) {
    if (lines[place].trim() === "" || isOtherBlock(lines[place])) break;
    budget.left -= columnCount;
    rows.push(cellsOf(lines[place], columnCount));
  }
  return rows;
}

// Splits a line at its pipes. One behind a backslash belongs to its cell.
function cellsOf(line, mostCount = MOST_COLUMNS + 1) {
  const text = line.trim();
  const cells = [];
  let cell = "";
  for (let at = text[0] === "|" ? 1 : 0; at < text.length && cells.length < mostCount; at += 1) {
    if (text[at] === "|") {
      cells.push(cell.trim());
      cell = "";
    } else if (text[at] === "\\" && text[at + 1] === "|") {
      cell += "|";
      at += 1;
    } else cell += text[at];
  }
  return cell.trim() === "" ? cells : [...cells, cell.trim()];
}
