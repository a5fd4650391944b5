-- What the example keeps of its own; everything about retries is the extension's.
CREATE TABLE rides (
    id     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    rider  text NOT NULL,
    fare   bigint NOT NULL,
    charge text                                   -- the payment service's, once it is made
);
